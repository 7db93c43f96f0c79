"""Arithmetic that rules of several frameworks share: divisibility over columns, by table where columns are long."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solver.frameworks.facts import Facts
from solver.frameworks.rules import INTERLEAVED, Bools, Columns, Ints
from solver.layout import SCHEDULE_KINDS, TWO_CHUNKS, Schedule
from solver.schedules import get_schedule

_TABLE_FROM = 1024
_TABLE_LIMIT = 1 << 18


def always(columns: Columns) -> Bools:
    return np.ones(columns["tp"].shape, dtype=np.bool_)


def divides(divisor: Ints, number: int) -> Bools:
    """Where `divisor` (>= 1) divides one number."""
    highest = int(divisor.max(initial=1))
    if divisor.size < _TABLE_FROM or highest > _TABLE_LIMIT:
        return np.asarray(number % divisor == 0)
    table = np.zeros(highest + 1, dtype=np.bool_)
    table[1:] = number % np.arange(1, highest + 1) == 0
    return np.asarray(table[divisor])


def divides_all(divisor: Ints, numbers: Iterable[int]) -> Bools:
    result = np.ones(divisor.shape, dtype=np.bool_)
    for number in numbers:
        result &= divides(divisor, number)
    return result


def heads_split(facts: Facts, columns: Columns) -> Bools:
    return divides_all(columns["tp"], facts.heads)


def kv_heads_split_or_replicate(facts: Facts, columns: Columns) -> Bools:
    """kv heads divide over tp, or tp is a multiple of them and every rank keeps one of their copies."""
    result = always(columns)
    for number in facts.kv_heads:
        result &= divides(columns["tp"], number) | (columns["tp"] % number == 0)
    return result


def ffn_splits(facts: Facts, columns: Columns) -> Bools:
    dense = divides_all(columns["tp"], (*facts.dense_ffn, *facts.shared_ffn))
    return np.asarray(dense & divides_all(columns["etp"], facts.expert_ffn))


def experts_split(facts: Facts, columns: Columns) -> Bools:
    """ep divides the experts; without experts ep and etp are 1."""
    if facts.moe:
        return divides_all(columns["ep"], facts.experts)
    return np.asarray((columns["ep"] == 1) & (columns["etp"] == 1))


def expert_grid_fits(_: Facts, columns: Columns) -> Bools:
    """etp x ep x edp = tp x cp x dp within one pipeline stage."""
    stage = columns["tp"] * columns["cp"] * columns["dp"]
    return np.asarray(stage % (columns["etp"] * columns["ep"]) == 0)


def devices_suffice(_: Facts, columns: Columns) -> Bools:
    needed = columns["tp"].astype(np.float64) * columns["cp"] * columns["dp"] * columns["pp"]
    return np.asarray(needed <= columns["devices"])


def batch_agrees(facts: Facts, columns: Columns) -> Bools:
    """At least one micro-batch, and dp x mbs x micro-batches is the global batch within its tolerance."""
    enough = np.asarray(columns["micro_batches"] >= 1)
    if facts.rows is None:
        return enough
    return np.asarray(enough & (np.abs(columns["step_rows"] - facts.rows) <= facts.tolerance * facts.rows))


def rows_cut_in_zigzag(facts: Facts, columns: Columns) -> Bools:
    """A row is cut in 2 cp pieces, so that causal work is equal."""
    return np.asarray((columns["cp"] == 1) | divides(2 * columns["cp"], facts.row_tokens))


def rows_cut_for_sequence_parallel(facts: Facts, columns: Columns) -> Bools:
    split = (columns["sequence_parallel"] == 1) & (columns["tp"] > 1)
    return np.asarray(~split | divides(columns["cp"] * columns["tp"], facts.row_tokens))


def heads_scatter_over_cp(facts: Facts, columns: Columns) -> Bools:
    """all_to_all gives each of the cp ranks some of the heads that tp left: query and kv heads divide by tp x cp."""
    scattered = (columns["cp"] > 1) & (columns["cp_kind"] == 1)
    return np.asarray(~scattered | divides_all(columns["tp"] * columns["cp"], (*facts.heads, *facts.kv_heads)))


def interleaving_has_stages(_: Facts, columns: Columns) -> Bools:
    return np.asarray((columns["vpp"] == 1) | (columns["pp"] > 1))


def interleaving_has_micro_batches(_: Facts, columns: Columns) -> Bools:
    """Groups of pp micro-batches pass a chunk before the next chunk starts."""
    whole = (columns["micro_batches"] >= columns["pp"]) & (columns["micro_batches"] % columns["pp"] == 0)
    return np.asarray((columns["vpp"] == 1) | whole)


def schedule_runs(_: Facts, columns: Columns) -> Bools:
    """Each schedule with demands of its own is asked about the pipelines it is to run, equal ones once."""
    several = columns["vpp"] > 1
    result = np.where(columns["schedule"] == INTERLEAVED, several, ~several)
    for code in np.unique(columns["schedule"]).tolist():
        kind = SCHEDULE_KINDS[code]
        if kind in TWO_CHUNKS:
            mine = np.flatnonzero(columns["schedule"] == code)
            pp, vpp, micro = (columns[name][mine] for name in ("pp", "vpp", "micro_batches"))
            # packed: layouts have at most 2^18 stages and chunks and 2^26 micro-batches
            distinct, inverse = np.unique((pp << 45) | (vpp << 27) | micro, return_inverse=True)
            shapes = [(key >> 45, (key >> 27) & 0x3FFFF, key & 0x7FFFFFF) for key in distinct.tolist()]
            runs = np.array([get_schedule(kind).refusal(*shape) is None for shape in shapes])
            result[mine] = runs[inverse]
    return np.asarray(result)


def every_chunk_has_layers(facts: Facts, columns: Columns) -> Bools:
    """Parts of the pipeline that hold layers, each counted once, are not more than the layers."""
    copies = np.array([Schedule(kind=kind).copies for kind in SCHEDULE_KINDS])[columns["schedule"]]
    return np.asarray(columns["pp"] * columns["vpp"] // copies - columns["empty_chunks"] <= facts.layers)


def layers_divide_unless_split_explicitly(facts: Facts, columns: Columns) -> Bools:
    return np.asarray((columns["explicit_split"] == 1) | divides(columns["pp"] * columns["vpp"], facts.layers))


def positions_suffice(facts: Facts, columns: Columns) -> Bools:
    fits = facts.learned_positions is None or facts.row_tokens <= facts.learned_positions
    return always(columns) if fits else ~always(columns)


def sequence_parallel_has_tp(_: Facts, columns: Columns) -> Bools:
    return np.asarray((columns["sequence_parallel"] == 0) | (columns["tp"] > 1))


def balanced_split(layers: int, stages: int) -> list[int]:
    """Layers per stage as equal as they can be; the ends, which hold embedding and head, get the fewer ones."""
    least, extra = divmod(layers, stages)
    preferred = [*range(1, stages - 1), 0, stages - 1]
    more = set(preferred[:extra])
    return [least + (stage in more) for stage in range(stages)]
