"""Megatron-core (with the training arguments of Megatron-LM), one rule set a release, checked against its sources.

Ids MC01 ... MC53 are those under which the rules were collected; MCX-fp16 is a further check of its arguments.py, CAP-* follow
from the capabilities. Two kinds of rules stand beside each other:

- columns (grid, rows, pipeline, experts, states, vocabulary): what a layout of ours can break; the search asks them for arrays;
- settings (`settings`, `settings_*`): what the flags of a launch can break, asked of every export before it is written.

`fires` says which of Megatron's own checks notices: its arguments, its TransformerConfig, the building of groups and layers,
or the first step. MC49 (tied embeddings are held twice) is a term of the memory model, not a rule.
"""

from __future__ import annotations

from dataclasses import replace

from solver.frameworks.megatron_core import experts, grid, pipeline, rows, states, vocabulary
from solver.frameworks.megatron_core.rows import sequence_multiple
from solver.frameworks.megatron_core.versions import ACCOUNT_FLAGS, LATEST, LAYOUT_STRING, RELEASES, order, within
from solver.frameworks.megatron_core.vocabulary import VOCAB_DIVISIBLE_BY, padded_vocab_size
from solver.frameworks.rule_set import LayoutCheck, RuleSet
from solver.frameworks.rules import Capabilities

__all__ = ["RULE_SET", "RULE_SETS", "VOCAB_DIVISIBLE_BY", "padded_vocab_size", "sequence_multiple"]

NAME = "megatron-core"
RULES = (*grid.RULES, *vocabulary.RULES, *rows.RULES, *pipeline.RULES, *experts.RULES, *states.RULES)

CAPABILITIES = Capabilities(
    uneven_layers="any",
    schedules=pipeline.SCHEDULES,
    ragged_interleaving=False,
    per_stage_degrees=False,
    unequal_shares=False,
    per_layer_recompute="per_stage_count",
    zero_levels=states.ZERO_LEVELS,
    unlike_devices="one_vendor",
    cp_kinds=("ring", "all_to_all"),
    offload_optimizer_grid=states.OFFLOAD_GRID,
    expert_tensor_parallel=True,
    exports=True,
)


def _layout_checks(release: str) -> tuple[LayoutCheck, ...]:
    early = order(release) < order(ACCOUNT_FLAGS)
    return (pipeline.predictions_follow_all_layers, *((pipeline.uneven_is_not_interleaved,) if early else ()))


def _rule_set(release: str) -> RuleSet:
    """Rules and capabilities of one release. Before layout strings only the first and the last stage can differ; exports are
    written for the latest release."""
    latest = release == LATEST
    strings = order(release) >= order(LAYOUT_STRING)
    return RuleSet(
        name=NAME,
        versions=("latest-known", release) if latest else (release,),
        capabilities=replace(CAPABILITIES, uneven_layers="any" if strings else "ends", exports=latest),
        rules=tuple(rule for rule in RULES if within(release, rule.since, rule.until)),
        layout_checks=_layout_checks(release),
    )


RULE_SETS = tuple(_rule_set(release) for release in reversed(RELEASES))
RULE_SET = RULE_SETS[0]
