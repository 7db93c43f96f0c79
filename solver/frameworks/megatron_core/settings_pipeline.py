"""Settings: the four ways to shape a pipeline (even, first/last, account flags, layout string), and interleaving."""

from __future__ import annotations

from typing import Any, Final

from solver.frameworks.megatron_core.layout_string import layout_findings
from solver.frameworks.megatron_core.settings import Settings, SettingsRule
from solver.frameworks.megatron_core.versions import (
    ACCOUNT_FLAGS,
    EXPERT_OVERLAP,
    HYPER_CONNECTIONS,
    LAYOUT_STRING,
    LEFT_OVER_LAYERS,
    MULTI_TOKEN_PREDICTION,
    RECOMPUTE_MODULES,
)
from solver.frameworks.predicates import balanced_split


def _plain_shape(s: Settings) -> bool:
    return s.layout is None and not s.uneven_flags and not s.account_flags and s.hybrid_pattern is None


def _even(s: Settings) -> bool:
    if not _plain_shape(s):
        return True
    each, rest = divmod(s.num_layers, s.pp)
    return rest == 0 and each % (s.layers_per_virtual_stage or s.virtual) == 0


def _even_hint(s: Settings) -> dict[str, Any]:
    depths = [pp for pp in range(1, s.num_layers + 1) if s.num_layers % pp == 0]
    found: dict[str, Any] = {"pp": sorted(sorted(depths, key=lambda pp: abs(pp - s.pp))[:6])}
    return found | ({"layers_per_stage": balanced_split(s.num_layers, s.pp)} if s.pp <= s.num_layers else {})


def _accounted(s: Settings) -> bool:
    if not s.account_flags:
        return True
    total = s.num_layers + s.account_flags
    return total % s.pp == 0 and total // s.pp % s.virtual == 0


def _accounted_in_011(s: Settings) -> bool:
    """The config of release 0.11 takes embedding and loss for stages of their own, the layer build for layers; with virtual
    stages both take them for layers."""
    if not s.account_flags or s.virtual > 1 or s.uneven_flags:
        return s.virtual == 1 or _accounted(s)
    left = s.pp - s.account_flags
    return left != 0 and s.num_layers % left == 0


def _middle(s: Settings) -> tuple[int, int]:
    """Layers and stages between those that are given."""
    given = [count for count in (s.first_stage_layers, s.last_stage_layers) if count is not None]
    return s.num_layers - sum(given), s.pp - len(given)


def _ends(s: Settings) -> bool:
    if not s.uneven_flags or s.layout is not None:
        return True
    given = [count for count in (s.first_stage_layers, s.last_stage_layers) if count is not None]
    layers, stages = _middle(s)
    if min(given) < 1 or any(count % s.virtual for count in given) or layers < 0:
        return False
    return stages <= 0 or (layers > 0 and layers % stages == 0 and layers // stages % s.virtual == 0)


def _none_left_over(s: Settings) -> bool:
    """Where the given stages are all stages, they hold all layers."""
    layers, stages = _middle(s)
    return not s.uneven_flags or s.layout is not None or stages != 0 or layers == 0


def _stages_for_both(s: Settings) -> bool:
    return not s.uneven_flags or _middle(s)[1] >= 0


def _ends_hint(s: Settings) -> dict[str, Any]:
    """A first and a last stage that leave equal ones between them."""
    split = balanced_split(s.num_layers, s.pp) if s.pp <= s.num_layers else []
    if len(split) < 2 or len(set(split[1:-1])) > 1:
        return {}
    return {"first_stage_layers": [split[0]], "last_stage_layers": [split[-1]]}


def _findings(s: Settings, mtp_layers: int) -> list[str]:
    return [] if s.layout is None else layout_findings(s.layout, s.pp, s.num_layers, mtp_layers)


def _interleaved(s: Settings) -> bool:
    return s.virtual == 1 or s.pp > (1 if s.overlap_p2p else 2)


def _groups(s: Settings) -> bool:
    """MC21: PP <= group <= M, and the last group is whole or as long as the pipeline."""
    if s.virtual == 1:
        return True
    group, rest = s.virtual_group_size or s.pp, s.micro_batches % (s.virtual_group_size or s.pp)
    return s.pp <= group <= s.micro_batches and (rest == 0 or rest >= s.pp)


def _hybrid(s: Settings) -> bool:
    if s.hybrid_pattern is None:
        return True
    segments = s.hybrid_pattern.count("|") + 1
    alone = s.virtual == 1 and s.layout is None and not s.account_flags
    return alone and (segments == 1 or (segments % s.pp == 0 and not s.uneven_flags))


_ENDS: Final = ("first_stage_layers", "last_stage_layers", "num_layers", "pp")
_ACCOUNTED: Final = "{s.num_layers} layers and {s.account_flags} account flags do not divide over pp {s.pp} x vpp {s.virtual}"
_LAYOUT: Final = ("layout", "num_layers", "mtp_layers", "pp")
_WRONG_LAYOUT: Final = "the layout string is not one of {s.num_layers} layers and {s.mtp_layers} prediction layers on pp {s.pp}"
_LEFT_OVER: Final = (
    "first {s.first_stage_layers} and last {s.last_stage_layers} are all pp {s.pp} stages, but not all {s.num_layers} layers"
)

RULES: Final = (
    SettingsRule("MC14", "silently_changed", ("build",), ("num_layers", "pp", "vpp"),
        "{s.num_layers} layers do not divide over pp {s.pp} x vpp {s.virtual}: the rest is dropped",
        _even, _even_hint, until=ACCOUNT_FLAGS),
    SettingsRule("MC14", "refused", ("arguments", "build"), ("num_layers", "pp", "vpp"),
        "{s.num_layers} layers do not divide over pp {s.pp} x vpp {s.virtual}", _even, _even_hint, since=ACCOUNT_FLAGS),
    SettingsRule("MC15", "refused", ("arguments",), ("account_for_embedding", "account_for_loss"),
        "account flags came with release 0.11", lambda s: not s.account_flags, until=ACCOUNT_FLAGS),
    SettingsRule("MC15", "refused", ("config",), ("account_for_embedding", "account_for_loss", *_ENDS),
        "account flags exclude first/last", lambda s: not (s.account_flags and s.uneven_flags), since=ACCOUNT_FLAGS),
    SettingsRule("MC15", "refused", ("build",), ("num_layers", "pp", "vpp"), _ACCOUNTED, _accounted,
        since=ACCOUNT_FLAGS, until=RECOMPUTE_MODULES),
    SettingsRule("MC15", "refused", ("config",), ("num_layers", "pp", "vpp"),
        "{s.num_layers} layers do not divide over the stages that {s.account_flags} account flags leave of pp {s.pp} here",
        _accounted_in_011, since=ACCOUNT_FLAGS, until=RECOMPUTE_MODULES),
    SettingsRule("MC15", "refused", ("config", "build"), ("num_layers", "pp", "vpp"), _ACCOUNTED, _accounted,
        since=RECOMPUTE_MODULES),
    SettingsRule("MC16", "refused", ("config", "build"), ("first_stage_layers", "last_stage_layers", "num_layers", "pp", "vpp"),
        "first {s.first_stage_layers} and last {s.last_stage_layers} of {s.num_layers} layers leave no equal stages on pp {s.pp} "
        "x vpp {s.virtual}", _ends, _ends_hint),
    SettingsRule("MC16", "silently_changed", ("build",), _ENDS, "first and last are given, but pp is 1: one of them is taken",
        _stages_for_both),
    SettingsRule("MC16", "silently_changed", ("build",), _ENDS, _LEFT_OVER, _none_left_over, _ends_hint, until=ACCOUNT_FLAGS),
    SettingsRule("MC16", "refused", ("config",), _ENDS,
        "first and last are all pp {s.pp} stages, which these releases divide by zero: give one of them",
        lambda s: _middle(s)[1] != 0 or not s.uneven_flags, lambda s: {"last_stage_layers": [None]} if s.pp > 1 else {},
        since=ACCOUNT_FLAGS, until=LAYOUT_STRING),
    SettingsRule("MC16", "silently_changed", ("build",), _ENDS, _LEFT_OVER, _none_left_over, _ends_hint,
        since=LAYOUT_STRING, until=LEFT_OVER_LAYERS),
    SettingsRule("MC16", "refused", ("config", "build"), _ENDS, _LEFT_OVER, _none_left_over, _ends_hint, since=LEFT_OVER_LAYERS),
    SettingsRule("MC16", "refused", ("build",), ("vpp", "first_stage_layers", "last_stage_layers"),
        "first/last do not go with virtual stages before release 0.11", lambda s: not s.uneven_flags or s.virtual == 1,
        lambda _: {"vpp": [1]}, until=ACCOUNT_FLAGS),
    SettingsRule("MC17", "refused", ("arguments",), ("layers_per_virtual_stage",),
        "layers of a virtual stage cannot be given beside first/last: give the number of virtual stages",
        lambda s: s.layers_per_virtual_stage is None or not s.uneven_flags),
    SettingsRule("MC17-one", "refused", ("arguments",), ("layers_per_virtual_stage", "vpp"),
        "virtual stages are given either by their number or by their layers",
        lambda s: s.layers_per_virtual_stage is None or s.vpp is None),
    SettingsRule("MC18", "refused", ("arguments",), ("layout",), "layout strings came with release 0.13",
        lambda s: s.layout is None, until=LAYOUT_STRING),
    SettingsRule("MC18", "refused", ("config",), ("layout",), "a layout string excludes first/last and account flags",
        lambda s: s.layout is None or not (s.uneven_flags or s.account_flags), since=LAYOUT_STRING),
    SettingsRule("MC18-vpp", "refused", ("config",), ("layout", "vpp"),
        "the layout string has {s.virtual} virtual stages a rank, {s.vpp} are given",
        lambda s: s.layout is None or s.vpp in (None, s.virtual), lambda s: {"vpp": [s.virtual]}, since=LAYOUT_STRING),
    SettingsRule("MC19", "refused", ("config",), _LAYOUT, _WRONG_LAYOUT, lambda s: not _findings(s, s.mtp_in_layout),
        lambda s: {"findings": _findings(s, s.mtp_in_layout)}, since=LAYOUT_STRING, until=EXPERT_OVERLAP),
    SettingsRule("MC19", "silently_changed", ("build",), _LAYOUT, "the layout string has no place for {s.mtp_layers} prediction "
        "layers, which this release does not notice", lambda s: s.layout is None or s.mtp_in_layout == s.mtp_layers,
        since=LAYOUT_STRING, until=EXPERT_OVERLAP),
    SettingsRule("MC19", "refused", ("config",), _LAYOUT, _WRONG_LAYOUT, lambda s: not _findings(s, s.mtp_layers),
        lambda s: {"findings": _findings(s, s.mtp_layers)}, since=EXPERT_OVERLAP),
    SettingsRule("MC20", "refused", ("arguments",), ("vpp", "pp", "overlap_p2p"),
        "virtual stages need pp above 1, above 2 without overlapped point-to-point; pp is {s.pp}",
        _interleaved, lambda s: {"vpp": [1]}),
    SettingsRule("MC21", "refused", ("first_step",), ("virtual_group_size", "global_batch_size"),
        "interleaving on pp {s.pp} cannot pass {s.micro_batches} micro-batches in groups of {s.virtual_group_size}",
        _groups, lambda s: {"micro_batches": [s.pp * max(1, s.micro_batches // s.pp), s.pp * (s.micro_batches // s.pp + 1)]}),
    SettingsRule("MC44", "refused", ("arguments",), ("mtp_layers",), "multi-token prediction came with release 0.12",
        lambda s: not s.mtp_layers, until=MULTI_TOKEN_PREDICTION),
    SettingsRule("MC44", "refused", ("arguments",), ("mtp_layers", "positions"),
        "multi-token prediction goes with rotary or no positions, not {s.positions}",
        lambda s: not s.mtp_layers or s.positions in ("rope", "none"), lambda _: {"positions": ["rope", "none"]},
        since=MULTI_TOKEN_PREDICTION),
    SettingsRule("MC45", "refused", ("config",), ("pipeline_dtype_set", "pp"), "a pipeline needs the type of what stages pass on",
        lambda s: s.pp == 1 or s.pipeline_dtype_set),
    SettingsRule("MC46", "refused", ("arguments",), ("hybrid_pattern", "pp"),
        "a hybrid pattern excludes virtual stages, layout strings and account flags; its segments divide over pp {s.pp}",
        _hybrid),
    SettingsRule("MC47", "refused", ("arguments",), ("defer_embedding_gradient", "pp", "gradient_fusion"),
        "deferring the embedding's gradient needs pp above 1 and fused gradient accumulation",
        lambda s: not s.defer_embedding_gradient or (s.pp > 1 and s.gradient_fusion)),
    SettingsRule("MC50", "refused", ("config",), ("hyper_connections", "pp", "mtp_layers", "recompute"),
        "hyper-connections need pp 1, no multi-token prediction and no full recompute",
        lambda s: not s.hyper_connections or (s.pp == 1 and not s.mtp_layers and s.recompute != "full"),
        since=HYPER_CONNECTIONS),
)  # fmt: skip
