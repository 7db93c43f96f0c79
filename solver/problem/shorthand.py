"""Shorthands of the document, expanded in one pass before validation, with the way back to the user's pointers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from solver.catalog import profiles
from solver.problem.pointers import Path

#: Where a string may stand for an object, and the key it stands for.
_STRINGS: Final[dict[tuple[str, ...], str]] = {
    ("framework",): "name",
    ("objective",): "kind",
    ("workload", "optimizer"): "name",
    ("workload", "software"): "name",
    ("workload", "task"): "kind",
}
#: Where one value may stand for a list of one.
_LISTS: Final[tuple[tuple[str, ...], ...]] = (("workload", "batching"), ("workload", "task", "target_modules"))


def expand(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Path, Path]]:
    """The document without shorthands, and for every path that moved the path in the user's document."""
    result = dict(document)
    moved: dict[Path, Path] = {}
    for section in ("workload", "constraints", "cluster"):
        if isinstance(result.get(section), Mapping):
            result[section] = dict(result[section])
    for path, key in _STRINGS.items():
        holder = _holder(result, path)
        if holder is not None and isinstance(holder.get(path[-1]), str):
            holder[path[-1]] = {key: holder[path[-1]]}
            moved[(*path, key)] = path
    for path in _LISTS:
        _wrap(result, path, moved)
    _expand_allowed(result, moved)
    _expand_links(result, moved)
    _drop_null_assumptions(result)
    return result, moved


def _holder(document: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    """The object that holds the last key of the path; objects on the way are copied."""
    here: Any = document
    for part in path[:-1]:
        inside = here.get(part)
        if not isinstance(inside, dict):
            return None
        here[part] = dict(inside)
        here = here[part]
    assert isinstance(here, dict)
    return here


def _wrap(document: dict[str, Any], path: tuple[str, ...], moved: dict[Path, Path]) -> None:
    holder = _holder(document, path)
    if holder is None or path[-1] not in holder:
        return
    value = holder[path[-1]]
    if isinstance(value, str | int | float | bool):
        holder[path[-1]] = [value]
        moved[(*path, 0)] = path


def _expand_allowed(document: dict[str, Any], moved: dict[Path, Path]) -> None:
    """constraints.allowed: one value for a list of one."""
    holder = _holder(document, ("constraints", "allowed", ""))
    for word in list(holder or ()):
        _wrap(document, ("constraints", "allowed", word), moved)


def _expand_links(document: dict[str, Any], moved: dict[Path, Path]) -> None:
    """links: {node_matrix: ...} is kept under the cluster's own node_matrix."""
    cluster = document.get("cluster")
    if isinstance(cluster, dict) and isinstance(cluster.get("links"), Mapping) and set(cluster["links"]) == {"node_matrix"}:
        cluster["node_matrix"] = cluster.pop("links")["node_matrix"]
        moved[("cluster", "node_matrix")] = ("cluster", "links", "node_matrix")


def _drop_null_assumptions(document: dict[str, Any]) -> None:
    """A known assumption that is null is the profile's; unknown names stay and are refused later."""
    holder = _holder(document, ("workload", "software", "assumptions", ""))
    known = {name for profile in profiles().values() for name in profile.assumptions}
    for name in [name for name, value in (holder or {}).items() if value is None and name in known]:
        assert holder is not None
        del holder[name]
