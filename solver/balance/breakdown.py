"""Where the step goes, for the rank that ends last: computing, communication, bubble, imbalance, optimizer (DESIGN 3.7)."""

from __future__ import annotations

import numpy as np

from solver.balance.ledger import Assembled
from solver.balance.price_kernels import equal_ends, replica_end, replica_ends
from solver.cost import columns as col
from solver.cost.time_kernels import peer_seconds, shard_seconds, table_shard_seconds
from solver.plan import Exposure, TimeBreakdown
from solver.schedules import get_schedule

ROUNDING = 1e-12
AXES = ("tp", "cp", "ep", "pp", "dp")


def time_breakdown(assembled: Assembled) -> TimeBreakdown:
    """Mean over scenarios; all but `hidden` add up to the step time."""
    totals = {name: 0.0 for name in ("compute", "bubble", "imbalance", "optimizer")}
    exposed = dict.fromkeys(AXES, 0.0)
    hidden = dict.fromkeys(AXES, 0.0)
    scenarios = 1 if assembled.model.scenarios.equal_rows else assembled.model.scenarios.count
    for scenario in range(scenarios):
        _add_scenario(assembled, scenario, totals, exposed, hidden)
    communication = {
        axis: Exposure(exposed=exposed[axis] / scenarios, hidden=hidden[axis] / scenarios)
        for axis in AXES
        if exposed[axis] > 0.0 or hidden[axis] > 0.0
    }
    means = {name: value / scenarios for name, value in totals.items()}
    return TimeBreakdown(communication=communication, **means)


def _add_scenario(
    assembled: Assembled, scenario: int, totals: dict[str, float], exposed: dict[str, float], hidden: dict[str, float]
) -> None:
    chain, stage, end, work = _last_rank(assembled, scenario)
    mean_work = float(work.mean())
    micro_batches = work.shape[0]
    ends = np.empty(assembled.stages)
    equal_ends(
        assembled.forward,
        assembled.backward,
        assembled.weight,
        assembled.stages,
        assembled.vpp,
        assembled.schedule,
        chain,
        micro_batches,
        mean_work,
        ends,
    )
    passes = _passes(assembled, micro_batches)
    busy = 0.0
    for slot in range(stage, assembled.stages * assembled.vpp, assembled.stages):
        busy += passes * _operation(assembled.forward, chain, slot, mean_work)
        busy += passes * _operation(assembled.backward, chain, slot, mean_work)
    imbalance = end - float(ends[stage])
    bubble = float(ends[stage]) - busy
    if abs(imbalance) <= ROUNDING * end:
        bubble, imbalance = bubble + imbalance, 0.0
    if imbalance < 0.0:
        bubble, imbalance = bubble + imbalance, 0.0
    bubble = max(bubble, 0.0)  # rounding where there is none
    visible, covered = _communication(assembled, chain, stage, micro_batches)
    compute = busy - sum(visible.values())
    visible["dp"] += float(assembled.sync[chain, stage, 0])
    covered["dp"] += float(assembled.sync[chain, stage, 1])
    totals["compute"] += compute
    totals["bubble"] += bubble
    totals["imbalance"] += imbalance
    totals["optimizer"] += float(assembled.update[chain, stage]) + float(assembled.model.scalars[col.STEP_OVERHEAD])
    for axis in AXES:
        exposed[axis] += visible[axis]
        hidden[axis] += covered[axis]


def _passes(assembled: Assembled, micro_batches: int) -> float:
    """Micro-batches that pass each chunk of a rank."""
    return micro_batches / get_schedule(assembled.laid_out.layout.schedule.kind).copies


def _operation(seconds: np.ndarray, chain: int, slot: int, work: float) -> float:
    return float(seconds[chain, slot, 0] + seconds[chain, slot, 1] * work)


def _last_rank(assembled: Assembled, scenario: int) -> tuple[int, int, float, np.ndarray]:
    """(chain, stage, end of its last backward, its replica's work per micro-batch) of the rank that ends last."""
    dealt = assembled.dealt(scenario)
    best: tuple[float, int, int] = (-1.0, 0, 0)
    replica = 0
    for chain, entry in enumerate(assembled.laid_out.chains):
        seen: set[bytes] = set()
        for _ in range(entry.count):
            work = np.ascontiguousarray(dealt[replica, : entry.micro_batches])
            if work.tobytes() not in seen:
                seen.add(work.tobytes())
                latest = replica_end(
                    assembled.forward,
                    assembled.backward,
                    assembled.weight,
                    assembled.stages,
                    assembled.vpp,
                    assembled.schedule,
                    chain,
                    work,
                    assembled.sync,
                    assembled.update,
                )
                best = max(best, (float(latest), -chain, -replica))
            replica += 1
    _, chain, replica = best[0], -best[1], -best[2]
    work = np.ascontiguousarray(dealt[replica, : assembled.laid_out.chains[chain].micro_batches])
    ends = _ends(assembled, chain, work)
    tails = ends + assembled.sync[chain, :, 0] + assembled.update[chain]
    stage = int(np.argmax(tails))
    return chain, stage, float(ends[stage]), work


def _ends(assembled: Assembled, chain: int, work: np.ndarray) -> np.ndarray:
    ends = np.empty(assembled.stages)
    replica_ends(
        assembled.forward,
        assembled.backward,
        assembled.weight,
        assembled.stages,
        assembled.vpp,
        assembled.schedule,
        chain,
        work,
        ends,
    )
    return ends


def _communication(assembled: Assembled, chain: int, stage: int, micro_batches: int) -> tuple[dict[str, float], dict[str, float]]:
    """Exposed and hidden seconds of one step on a rank, without the synchronisation at the end."""
    laid = assembled.laid_out
    scalars = assembled.model.scalars
    stages, vpp = assembled.stages, assembled.vpp
    point = int(laid.point_at[chain, stage])
    visible = dict.fromkeys(AXES, 0.0)
    covered = dict.fromkeys(AXES, 0.0)
    sharding = np.empty(2)
    layers: list[tuple[int, int]] = []
    schedule = get_schedule(laid.layout.schedule.kind)
    pieces = [schedule.piece(chunk, stage, stages) for chunk in range(vpp)]
    passes = _passes(assembled, micro_batches)
    for piece in pieces:
        for layer in range(int(laid.bounds[piece]), int(laid.bounds[piece + 1])):
            layers.append((int(assembled.model.architecture.kind_of_layer[layer]), int(laid.options[layer])))
    last = schedule.pieces(stages, vpp) - 1
    if last in pieces:
        option = layers[-1][1] if layers else col.OPTION_NONE
        layers += [(assembled.model.architecture.mtp_kind, option)] * assembled.model.architecture.mtp_layers
    for kind, option in layers:
        entry = laid.kinds[point, kind]
        again = 1.0 if option == col.OPTION_FULL else 0.0
        for axis, forward, backward, unseen in (
            ("tp", col.TENSOR_FORWARD, col.TENSOR_BACKWARD, col.TENSOR_HIDDEN),
            ("cp", col.CONTEXT_FORWARD, col.CONTEXT_BACKWARD, col.CONTEXT_HIDDEN),
            ("ep", col.EXPERT_FORWARD, col.EXPERT_BACKWARD, col.EXPERT_HIDDEN),
        ):
            visible[axis] += passes * float((1.0 + again) * entry[forward] + entry[backward])
            covered[axis] += passes * float(entry[unseen])
        shard_seconds(laid.kinds, laid.points, laid.meshes, scalars, point, point, kind, laid.zero, sharding)
        visible["dp"] += passes * float(sharding.sum())
    for end in {0, last} & set(pieces):
        table = table_shard_seconds(laid.points, laid.meshes, scalars, point, point, laid.zero, end == 0)
        visible["dp"] += passes * 2.0 * float(table)
    peer = float(peer_seconds(laid.points, laid.meshes, scalars, laid.peers, stages, laid.point_at, laid.point_at, chain, stage))
    visible["pp"] = passes * vpp * 2.0 * peer
    fraction = float(scalars[col.PEER_EXPOSED])
    covered["pp"] = visible["pp"] * (1.0 - fraction) / fraction if fraction > 0.0 else 0.0
    return visible, covered
