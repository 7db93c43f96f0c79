"""`framework: any`: only what arithmetic and the algorithms themselves require; no export.

ids S01 ... are ours; relations between stages are L01 ... L09 of `layout_checks`.
"""

from __future__ import annotations

import numpy as np

from solver.frameworks import predicates as holds
from solver.frameworks.facts import Facts
from solver.frameworks.rule_set import RuleSet
from solver.frameworks.rules import Bools, Capabilities, Columns, Rule
from solver.layout import SCHEDULE_KINDS

OFFLOAD_GRID = (0.0, 0.25, 0.5, 0.75, 1.0)


def zero_in_range(_: Facts, columns: Columns) -> Bools:
    return np.asarray((columns["zero"] >= 0) & (columns["zero"] <= 3))


def offload_on_grid(_: Facts, columns: Columns) -> Bools:
    return np.isin(columns["offload_optimizer_percent"], [round(100 * part) for part in OFFLOAD_GRID])


CAPABILITIES = Capabilities(
    uneven_layers="any",
    schedules=SCHEDULE_KINDS,
    ragged_interleaving=True,
    per_stage_degrees=True,
    unequal_shares=True,
    per_layer_recompute="any",
    zero_levels=(0, 1, 2, 3),
    unlike_devices="any",
    cp_kinds=("ring", "all_to_all"),
    offload_optimizer_grid=OFFLOAD_GRID,
    expert_tensor_parallel=True,
    exports=False,
)

RULES = (
    Rule(
        "S01", "refused", ("tp", "cp", "dp", "pp"),
        "tp {tp} x cp {cp} x dp {dp} x pp {pp} needs more than the {devices} devices",
        holds.devices_suffice,
    ),
    Rule("S02", "refused", ("tp",), "tp {tp} does not divide the attention heads ({heads})", holds.heads_split),
    Rule(
        "S03", "refused", ("tp",),
        "tp {tp} neither divides the key/value heads ({kv_heads}) nor is a multiple of them",
        holds.kv_heads_split_or_replicate,
    ),
    Rule(
        "S04", "refused", ("tp", "etp"),
        "tp {tp} does not divide the feed-forward sizes (dense {dense_ffn}, shared {shared_ffn}) "
        "or etp {etp} those of experts ({expert_ffn})",
        holds.ffn_splits,
    ),
    Rule("S05", "refused", ("ep", "etp"), "ep {ep} does not divide the experts ({experts}); without experts ep and etp are 1",
         holds.experts_split),
    Rule(
        "S06", "refused", ("ep", "etp", "dp"),
        "etp {etp} x ep {ep} does not divide the tp {tp} x cp {cp} x dp {dp} ranks of a stage",
        holds.expert_grid_fits,
    ),
    Rule("S07", "refused", ("cp",), "rows of {row_tokens} tokens do not divide in 2 x cp {cp} pieces", holds.rows_cut_in_zigzag),
    Rule(
        "S08", "refused", ("cp", "tp"),
        "rows of {row_tokens} tokens do not divide over cp {cp} x tp {tp} sequence parallel ranks",
        holds.rows_cut_for_sequence_parallel,
    ),
    Rule(
        "S09", "refused", ("cp", "tp", "cp_kind"),
        "all_to_all over cp {cp} needs heads ({heads}; {kv_heads} for keys and values) that divide by tp {tp} x cp",
        holds.heads_scatter_over_cp,
    ),
    Rule("S10", "refused", ("vpp", "pp"), "vpp {vpp} needs a pipeline, pp is {pp}", holds.interleaving_has_stages),
    Rule(
        "S11", "refused", ("micro_batches", "vpp", "pp"),
        "schedule {schedule} cannot run pp {pp} x vpp {vpp} with {micro_batches} micro-batches a replica",
        holds.schedule_runs,
    ),
    Rule("S12", "refused", ("pp", "vpp"), "{layers} layers do not fill pp {pp} x vpp {vpp} chunks", holds.every_chunk_has_layers),
    Rule("S13", "refused", ("zero",), "zero {zero} is not a ZeRO stage", zero_in_range),
    Rule(
        "S14", "refused", ("micro_batches", "dp", "mbs"),
        "dp {dp} x mbs {mbs} x micro-batches {micro_batches} give {step_rows} sequences a step, {rows} are asked for",
        holds.batch_agrees,
    ),
    Rule("S15", "refused", (), "rows of {row_tokens} tokens exceed the {learned_positions} learned positions",
         holds.positions_suffice),
    Rule("S16", "refused", ("offload_optimizer_percent",), "offload {offload_optimizer_percent} % is not on the grid",
         offload_on_grid),
    Rule("S17", "changed", ("sequence_parallel",), "sequence parallel does nothing at tp 1", holds.sequence_parallel_has_tp),
)  # fmt: skip

RULE_SET = RuleSet("any", ("latest-known",), CAPABILITIES, RULES)
