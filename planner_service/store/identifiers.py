"""Identifiers of searches: ULIDs (48 bits of milliseconds, 80 random bits, Crockford base 32), so they sort by creation."""

from __future__ import annotations

import re
import secrets

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
SEARCH_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
DIGEST = re.compile(r"[0-9a-f]{64}")


def new_search_id(moment_us: int) -> str:
    """A fresh identifier for something created at `moment_us`."""
    number = (moment_us // 1000 & (2**48 - 1)) << 80 | secrets.randbits(80)
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def is_search_id(text: str) -> bool:
    """Whether the text has the shape of a search id."""
    return SEARCH_ID.fullmatch(text) is not None


def is_plan_id(text: str) -> bool:
    """Whether the text has the shape of a plan id (a bare lower-case SHA-256)."""
    return DIGEST.fullmatch(text) is not None
