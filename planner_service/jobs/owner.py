"""Who holds a lease: machine, process and a random part, so that a restarted server recognises its dead predecessor."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
from collections.abc import Iterable
from pathlib import Path


def machine_name() -> str:
    """Eight hex digits that stand for this machine since its start (another start, another name).

    Containers with their own process numbers are machines of their own.
    """
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    text = platform.node() + (boot.read_text() if boot.exists() else "")
    text += str(space.readlink()) if space.is_symlink() else ""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def process_start(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None when there is none or the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def new_owner() -> str:
    """The name under which this process takes leases; each slot adds its number."""
    pid = os.getpid()
    return f"{machine_name()}-{pid}-{process_start(pid) or 0}-{secrets.token_hex(4)}"


def dead_owners(owners: Iterable[str]) -> list[str]:
    """Those owners that ran on this machine and certainly run no more; others are left to their lease."""
    here = machine_name()
    dead = []
    for owner in owners:
        parts = owner.split("-")
        if len(parts) < 4 or parts[0] != here or not parts[1].isdigit() or parts[2] == "0":
            continue
        if process_start(int(parts[1])) != parts[2]:
            dead.append(owner)
    return dead
