"""The proof log: every cell of the space, how it was closed and with which value."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.errors import FieldError, InvalidProblem
from solver.layout import SCHEDULE_KINDS
from solver.plan import ProofStep
from solver.search.cells import FAMILY_NAMES, REPLICAS, STAGES, Cells
from solver.search.driver import SearchState
from solver.search.grid import CP_KINDS, SPLITS
from solver.search.session import Session

MOST_STEPS = 1_000_000


def proof_steps(session: Session, state: SearchState) -> tuple[ProofStep, ...]:
    """The log of a search that kept one; refused for spaces of more than 10^6 cells."""
    if session.space.leaves > MOST_STEPS:
        message = f"a proof log is kept for spaces of at most {MOST_STEPS} cells; this one has {session.space.leaves}"
        raise InvalidProblem((FieldError("/search/proof", "too_large", message, None),))
    names = tuple(group.name for group in session.problem.cluster.groups)
    steps = []
    for cells, how, values in state.proof:
        value = float(values[0])
        steps.append(ProofStep(cell=cell_document(cells, names), closed_by=how, value=value if np.isfinite(value) else None))
    return tuple(steps)


def cell_document(cell: Cells, names: tuple[str, ...]) -> dict[str, Any]:
    """A cell in the words of the space's dimensions."""
    family = int(cell.family[0])
    across = int(cell.group[0, 0]) != int(cell.group[0, 1])
    slots = 2 if across else 1
    document: dict[str, Any] = {
        "family": FAMILY_NAMES[family],
        "groups": [names[int(cell.group[0, slot])] for slot in range(slots)],
        "tp": [int(cell.tp[0, slot]) for slot in range(slots)],
        "cp": int(cell.cp[0, 0]),
        "cp_kind": CP_KINDS[int(cell.cp_kind[0])],
        "ep": int(cell.ep[0, 0]),
        "etp": int(cell.etp[0, 0]),
        "pp": int(cell.stages[0]),
        "schedule": SCHEDULE_KINDS[int(cell.schedule[0])],
        "vpp": int(cell.vpp[0]),
        "mbs": int(cell.mbs[0]),
        "split": SPLITS[int(cell.split[0])],
        "rows": int(cell.rows[0]),
    }
    if family == REPLICAS:
        document["dp"] = [int(value) for value in cell.dp[0]]
        document["micro_batches"] = [int(value) for value in cell.micro[0]] if cell.level[0] else None
    else:
        document["dp"] = int(cell.total_dp[0])
        document["micro_batches"] = int(cell.micro[0, 0])
    if family == STAGES:
        document["first_stages"] = int(cell.first_count[0, 0])
        document["first_layers"] = int(cell.layers_first[0]) if cell.level[0] else None
    return document
