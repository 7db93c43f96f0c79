"""Appends figures to `benchmarks/results/NAME.jsonl` with commit and date."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results"


def record(name: str, figure: dict[str, Any]) -> None:
    """One line."""
    RESULTS.mkdir(exist_ok=True)
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS, check=False)
    stamp = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": head.stdout.strip() or None, "processors": os.cpu_count()}
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps({**stamp, **figure}) + "\n")
