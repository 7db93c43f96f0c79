"""Fitted values into the catalogue's files: only the numbers change."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from benchmarks.fit.fitting import Fitted
from benchmarks.fit.parameters import Parameter

DIGITS = 3


def write(fitted: Fitted) -> list[Path]:
    """Replace the value of every fitted constant that its data determine; returns the files that changed."""
    changed: set[Path] = set()
    for parameter, value, moved in zip(fitted.parameters, fitted.values, fitted.moved, strict=True):
        shown = f"{value if moved else parameter.prior:.{DIGITS}g}"
        for path, pattern in places(parameter):
            text = path.read_text(encoding="utf-8")
            new, count = re.subn(pattern, lambda match, shown=shown: match.group(1) + shown, text, count=1)
            if count and new != text:
                path.write_text(new, encoding="utf-8")
                changed.add(path)
    return sorted(changed)


def places(parameter: Parameter) -> list[tuple[Path, str]]:
    """(file, pattern whose first group precedes the number) of every place a parameter stands in."""
    root = Path(str(resources.files("solver.catalog")))
    key = re.escape(parameter.key)
    if parameter.kind == "shared":
        return [(root / "shared.toml", rf"(\[{key}\]\nvalue = )\S+")]
    if parameter.kind == "profile":
        files = [_file(root / "profiles", name) for name in parameter.targets]
        return [(path, rf"(\[assumptions\.{key}\]\nvalue = )\S+") for path in files]
    if parameter.kind == "device":
        return [(_file(root / "devices", name), rf"(\n{key} = )\S+") for name in parameter.targets]
    found = []
    for target in parameter.targets:
        machine, tier = target.split("/")
        found.append((_file(root / "clusters", machine), rf'(name = "{tier}"\n(?:[a-z_]+ = .*\n)*?efficiency = )\S+'))
    return found


def _file(folder: Path, name: str) -> Path:
    """The file of a folder whose entry has that name."""
    for path in sorted(folder.glob("*.toml")):
        if re.search(rf'^name = "{re.escape(name)}"$', path.read_text(encoding="utf-8"), re.MULTILINE):
            return path
    raise FileNotFoundError(f"no {folder.name} entry is called {name}")
