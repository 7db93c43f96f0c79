"""Problem and layout files: JSON or YAML, with references to other files expanded before anything else.

References, relative to the file they stand in: an object `{file: PATH}` anywhere, `hf_config: PATH`, `counts: PATH` (rows of
length and count), `sequence_lengths: {file: PATH}` (any file that `planner import lengths` reads), and `profile: PATH.json` of
the cluster (what `planner calibrate --output` writes). A referenced file is JSON, an object in YAML, or rows of numbers in CSV.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from planner_service.body import parse_json, require_object
from planner_service.cli.exits import UnreadableInput
from planner_service.solver_adapter import lengths_form, load_yaml
from planner_service.solver_profiles import with_profile

MAX_FILE_BYTES = 64 * 2**20
MAX_REFERENCES = 16
PATH_MEMBERS = ("hf_config", "counts")
YAML_ENDINGS = (".yaml", ".yml")


def load_document(name: str, *, foreign: bool = False) -> dict[str, Any]:
    """The object in a file (`-` is standard input) with its references expanded.

    `foreign`: a file of another tool, which has no references and may hold infinities.
    """
    if name == "-":
        raw, base, media = sys.stdin.buffer.read(MAX_FILE_BYTES), Path.cwd(), "yaml"
    else:
        path = Path(name)
        raw, base, media = read_file(path), path.parent, "yaml" if path.suffix.lower() in YAML_ENDINGS else "json"
    if foreign:
        return require_object(load_yaml(raw) if media == "yaml" else parse_json(raw, infinities=True))
    value = load_yaml(raw) if media == "yaml" else parse_json(raw)
    expanded = expand(require_object(value), base, MAX_REFERENCES)
    return _with_profile(require_object(expanded), base)


def _with_profile(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """The document with the calibrated profile in a file that its cluster names; a plain name is for a server to know."""
    cluster = document.get("cluster")
    name = cluster.get("profile") if isinstance(cluster, dict) else None
    if not isinstance(name, str) or not name.endswith(".json"):
        return document
    profile = require_object(parse_json(read_file(base / name)))
    if not {"software", "devices"} <= set(profile):
        raise UnreadableInput(f"{base / name}: not a profile of planner calibrate")
    return with_profile(document, profile)


def read_file(path: Path) -> bytes:
    """The bytes of a file that is not too large."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UnreadableInput(f"not a path: {error}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise UnreadableInput(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    return raw


def expand(value: Any, base: Path, depth: int) -> Any:
    """The value with every reference replaced by the content of its file."""
    if isinstance(value, list):
        return [expand(item, base, depth) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"file"} and isinstance(value["file"], str):
        return _referenced(base / value["file"], depth)
    made = {}
    for key, item in value.items():
        if key == "sequence_lengths" and _is_length_file(item):
            made[key] = _lengths(base / item["file"], value.get("max_sequence_length"))
            continue
        reference = key in PATH_MEMBERS and isinstance(item, str)
        made[key] = _referenced(base / item, depth, key == "hf_config") if reference else expand(item, base, depth)
    return made


def _is_length_file(value: Any) -> bool:
    """A reference to a file of lengths of another tool, rather than to one that holds the form itself (JSON or YAML)."""
    if not isinstance(value, dict) or set(value) != {"file"} or not isinstance(value["file"], str):
        return False
    return not value["file"].lower().endswith((".json", *YAML_ENDINGS))


def _lengths(path: Path, max_tokens: Any) -> dict[str, Any]:
    """The form of a problem that a file of lengths stands for; it is read in pieces, so it may be large."""
    try:
        with path.open("rb") as stream:
            return lengths_form(path.name, stream, max_tokens if isinstance(max_tokens, int) else None)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror or error}") from error


def _referenced(path: Path, depth: int, foreign: bool = False) -> Any:
    """The content of a referenced file; `foreign` as in `load_document`."""
    if depth == 0:
        raise UnreadableInput(f"{path}: more than {MAX_REFERENCES} files refer to each other")
    raw = read_file(path)
    ending = path.suffix.lower()
    if ending == ".csv":
        return _rows(path, raw)
    value = load_yaml(raw) if ending in YAML_ENDINGS else parse_json(raw, infinities=foreign)
    return value if foreign else expand(value, path.parent, depth - 1)


def _rows(path: Path, raw: bytes) -> list[list[int]]:
    """Rows of whole numbers; a first row of words is a heading, lines that begin with # are comments."""
    try:
        lines = [line for line in raw.decode("utf-8").splitlines() if line.strip() and not line.startswith("#")]
        rows = list(csv.reader(lines))
        if rows and not rows[0][0].strip().isdigit():
            rows = rows[1:]
        return [[int(cell) for cell in row] for row in rows]
    except (UnicodeDecodeError, ValueError, csv.Error) as error:
        raise UnreadableInput(f"{path}: rows of whole numbers are expected ({error})") from error
