"""Megatron-core v0.20 (Megatron-LM training arguments of August 2026), checked against its sources.

Ids MC01 ... MC53 are those under which the rules were collected; MCX-fp16 is a further check of its arguments.py, CAP-* follow
from the capabilities. Not reachable by a layout of ours, hence without a predicate:

| rules | why |
| --- | --- |
| MC03 | the rank order we emit is the default one and ends in pp |
| MC04 | the exporter always writes --expert-tensor-parallel-size, so its default (tp) never applies |
| MC07 | the exporter always writes --kv-channels |
| MC15, MC16, MC17, MC18 | uneven stages are always written as a layout string, never as first/last/account flags |
| MC24 | a problem whose router groups do not divide its experts is refused while it is parsed |
| MC26, MC28, MC29 | recompute flags come from the exporter in legal combinations, core_attn is the only selective module |
| MC30, MC31 | activation offload is not supported yet |
| MC33, MC36, MC42, MC45, MC48 | the exporter writes the flags and the environment together |
| MC34, MC35 | FSDP (ZeRO 2 and 3) is not among the capabilities |
| MC37, MC38, MC40, MC41, MC47, MC53 | the feature is never switched on |
| MC43, MC46, MC50 | linear attention, hybrid patterns and mHC are not among the model's fields |
| MC49 | a term of the memory model |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from solver.frameworks import predicates as holds
from solver.frameworks.facts import Facts
from solver.frameworks.predicates import always, balanced_split
from solver.frameworks.rule_set import RuleSet
from solver.frameworks.rules import Bools, Capabilities, Columns, Rule
from solver.layout import Layout
from solver.plan import Violation
from solver.problem.problem import Problem

VOCAB_DIVISIBLE_BY = 128
VERSIONS = ("latest-known", "0.20")

CAPABILITIES = Capabilities(
    uneven_layers=True,
    interleaved=True,
    per_stage_degrees=False,
    unequal_shares=False,
    per_layer_recompute="per_stage_count",
    zero_levels=(0, 1),
    unlike_devices="one_vendor",
    cp_kinds=("ring", "all_to_all"),
    offload_optimizer_grid=(0.0, 0.25, 0.5, 0.75, 1.0),
    expert_tensor_parallel=True,
    exports=True,
)


def padded_vocab_size(vocab_size: int, tp: int, divisible_by: int = VOCAB_DIVISIBLE_BY) -> int:
    """MC08: the vocabulary is padded to a multiple of `divisible_by` x tp."""
    unit = divisible_by * tp
    return -(-vocab_size // unit) * unit


def vocab_needs_no_padding(facts: Facts, columns: Columns) -> Bools:
    return holds.divides(VOCAB_DIVISIBLE_BY * columns["tp"], facts.vocab_size)


def padded_hint(facts: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    return {"padded_vocab_size": padded_vocab_size(facts.vocab_size, row["tp"])}


def split_hint(facts: Facts, row: Mapping[str, int]) -> dict[str, Any]:
    """A split that a layout string can carry, layers per (virtual) stage in pipeline order."""
    chunks = row["pp"] * row["vpp"]
    return {"layers_per_stage": balanced_split(facts.layers, chunks)} if chunks <= facts.layers else {}


def moe_tp_is_sequence_parallel(facts: Facts, columns: Columns) -> Bools:
    if not facts.moe:
        return always(columns)
    return np.asarray((columns["tp"] == 1) | (columns["sequence_parallel"] == 1))


def biased_experts_are_whole(facts: Facts, columns: Columns) -> Bools:
    if not (facts.moe and facts.linear_bias):
        return always(columns)
    return np.asarray(columns["etp"] == 1)


def special_states_have_sharded_adam(facts: Facts, columns: Columns) -> Bools:
    """Offload and states other than fp32 need the precision-aware optimizer: Adam behind the distributed optimizer."""
    plain = np.asarray(columns["offload_optimizer_percent"] == 0)
    if facts.optimizer not in ("adam", "adamw"):
        return plain
    return np.asarray((plain & facts.plain_states) | (columns["zero"] == 1))


def experts_spread_without_fp16(facts: Facts, columns: Columns) -> Bools:
    return always(columns) if facts.precision != "fp16" else np.asarray(columns["ep"] == 1)


def predictions_have_rotary_positions(facts: Facts, columns: Columns) -> Bools:
    return always(columns) if not facts.mtp_layers or facts.learned_positions is None else ~always(columns)


def optimizer_instances_divide(_: Facts, columns: Columns) -> Bools:
    ranks = columns["tp"] * columns["cp"] * columns["dp"]
    experts = ranks // np.maximum(1, columns["etp"] * columns["ep"])
    instances = columns["optimizer_replicas"]
    return np.asarray((columns["cp"] * columns["dp"] % instances == 0) & (experts % instances == 0))


def zero_is_known(_: Facts, columns: Columns) -> Bools:
    return np.isin(columns["zero"], CAPABILITIES.zero_levels)


def offload_on_grid(_: Facts, columns: Columns) -> Bools:
    return np.isin(columns["offload_optimizer_percent"], [round(100 * part) for part in CAPABILITIES.offload_optimizer_grid])


def predictions_follow_all_layers(problem: Problem, layout: Layout) -> Iterator[Violation]:
    """MC19: E first, L last, one virtual stage with all m, after every t, in the last chunk of its rank."""
    holders = [index for index, stage in enumerate(layout.stages) if "mtp" in stage.holds]
    if not problem.transformer.mtp_layers or len(holders) != 1:
        return
    behind = [stage.chunks[-1] for stage in layout.stages[holders[0] + 1 :]]
    if any(last >= first for first, last in behind):
        text = f"stage {holders[0]} holds the multi-token prediction layers, but layers follow in later stages"
        values: dict[str, Any] = {"mtp": holders}
        yield Violation(rule="MC19", severity="refused", message=text, values=values, nearest={"mtp": [layout.pp - 1]})


RULES = (
    Rule(
        "MC01", "refused", ("tp", "cp", "dp", "pp"),
        "tp {tp} x cp {cp} x dp {dp} x pp {pp} needs more than the {devices} devices",
        holds.devices_suffice,
    ),
    Rule(
        "MC02", "refused", ("ep", "etp", "dp"),
        "tp {tp} x cp {cp} x dp {dp} x pp {pp} ranks do not divide by etp {etp} x ep {ep} x pp {pp}",
        holds.expert_grid_fits,
    ),
    Rule("MC05", "refused", ("tp",), "tp {tp} does not divide the {heads} attention heads", holds.heads_split),
    Rule(
        "MC06", "refused", ("tp",),
        "tp {tp} neither divides the {kv_heads} key/value heads nor is a multiple of them",
        holds.kv_heads_split_or_replicate,
    ),
    Rule("MC08", "changed", ("tp",), "the vocabulary of {vocab_size} is padded at tp {tp}", vocab_needs_no_padding, padded_hint),
    Rule(
        "MC09", "refused", ("micro_batches", "dp", "mbs"),
        "dp {dp} x mbs {mbs} x micro-batches {micro_batches} give {step_rows} sequences a step, {rows} are asked for",
        holds.batch_agrees,
    ),
    Rule("MC10", "refused", ("cp",), "sequences of {row_tokens} tokens do not divide by 2 x cp {cp}", holds.rows_cut_in_zigzag),
    Rule(
        "MC11", "refused", ("cp", "tp"),
        "with sequence parallel, sequences of {row_tokens} tokens must divide by cp {cp} x tp {tp}",
        holds.rows_cut_for_sequence_parallel,
    ),
    Rule("MC12", "changed", ("sequence_parallel",), "sequence parallel is switched off at tp 1", holds.sequence_parallel_has_tp),
    Rule("MC13", "refused", (), "{row_tokens} tokens exceed the {learned_positions} positions", holds.positions_suffice),
    Rule(
        "MC14", "refused", ("pp", "vpp"),
        "{layers} layers do not divide over pp {pp} x vpp {vpp}; older releases drop layers silently",
        holds.layers_divide_unless_split_explicitly, split_hint,
    ),
    Rule("MC20", "refused", ("vpp", "pp"), "vpp {vpp} needs pp > 1, pp is {pp}", holds.interleaving_has_stages),
    Rule(
        "MC21", "refused", ("micro_batches", "vpp"),
        "interleaving passes groups of pp {pp} micro-batches, a replica has {micro_batches}",
        holds.interleaving_has_micro_batches,
    ),
    Rule("MC22", "refused", ("ep", "etp"), "ep {ep} does not divide the {experts} experts; without experts ep and etp are 1",
         holds.experts_split),
    Rule("MC23", "refused", ("sequence_parallel", "tp"), "experts at tp {tp} need sequence parallel",
         moe_tp_is_sequence_parallel),
    Rule("MC25", "refused", ("etp",), "experts with bias need etp 1, it is {etp}", biased_experts_are_whole),
    Rule(
        "MC32", "refused", ("offload_optimizer_percent", "zero"),
        "offload and states other than fp32 need the precision-aware optimizer: adam with ZeRO 1, not {optimizer}, {zero}",
        special_states_have_sharded_adam,
    ),
    Rule(
        "MC39", "refused", ("cp", "tp", "cp_kind"),
        "cp-comm-type a2a over cp {cp} needs heads ({heads}; {kv_heads} for keys and values) that divide by tp {tp} x cp",
        holds.heads_scatter_over_cp,
    ),
    Rule("MC44", "refused", (), "multi-token prediction does not go with learned positions", predictions_have_rotary_positions),
    Rule(
        "MC51", "refused", ("tp", "etp"),
        "tp {tp} does not divide the feed-forward sizes ({dense_ffn} {shared_ffn}) or etp {etp} those of experts ({expert_ffn})",
        holds.ffn_splits,
    ),
    Rule(
        "MC52", "refused", ("optimizer_replicas",),
        "{optimizer_replicas} instances of the distributed optimizer do not divide the data parallel ranks",
        optimizer_instances_divide,
    ),
    Rule("MCX-fp16", "refused", ("ep",), "expert parallelism does not go with fp16, ep is {ep}", experts_spread_without_fp16),
    Rule("CAP-layers", "refused", ("pp", "vpp"), "{layers} layers do not fill pp {pp} x vpp {vpp} chunks",
         holds.every_chunk_has_layers),
    Rule("CAP-zero", "refused", ("zero",), "ZeRO {zero} is not available: the distributed optimizer is ZeRO 1", zero_is_known),
    Rule("CAP-offload", "refused", ("offload_optimizer_percent",), "offload {offload_optimizer_percent} % is not on the grid",
         offload_on_grid),
)  # fmt: skip

RULE_SET = RuleSet("megatron-core", VERSIONS, CAPABILITIES, RULES, (predictions_follow_all_layers,))
