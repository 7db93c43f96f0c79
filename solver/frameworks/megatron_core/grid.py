"""Device grids: how ranks, heads and matrix columns divide over tensor, context, expert and pipeline parallelism."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.frameworks import predicates as holds
from solver.frameworks.facts import Facts
from solver.frameworks.megatron_core.versions import LINEAR_ATTENTION, LINEAR_CONTEXT_PARALLEL, REPLICATED_KV_HEADS
from solver.frameworks.predicates import always, divides_all
from solver.frameworks.rules import Bools, Columns, Rule


def kv_heads_divide(facts: Facts, columns: Columns) -> Bools:
    """Before heads were replicated, tp had to divide them."""
    return divides_all(columns["tp"], facts.kv_heads)


def linear_heads_split(facts: Facts, columns: Columns) -> Bools:
    """Key and value heads of linear attention divide by tp x cp."""
    return divides_all(columns["tp"] * columns["cp"], facts.linear_heads)


def linear_heads_split_without_context(facts: Facts, columns: Columns) -> Bools:
    """As first released: tp divides them, and there is no context parallelism."""
    if not facts.linear_heads:
        return always(columns)
    return np.asarray(divides_all(columns["tp"], facts.linear_heads) & (columns["cp"] == 1))


def optimizer_instances_divide(_: Facts, columns: Columns) -> Bools:
    """Copies of the sharded optimizer divide the data parallel ranks, those of experts too."""
    ranks = columns["tp"] * columns["cp"] * columns["dp"]
    experts = ranks // np.maximum(1, columns["etp"] * columns["ep"])
    instances = columns["optimizer_replicas"]
    return np.asarray((columns["cp"] * columns["dp"] % instances == 0) & (experts % instances == 0))


_LINEAR = "tp {tp} x cp {cp} does not divide the key and value heads ({linear_heads}) of linear attention"

RULES: Final = (
    Rule(
        "MC01", "refused", ("tp", "cp", "dp", "pp"),
        "tp {tp} x cp {cp} x dp {dp} x pp {pp} needs more than the {devices} devices",
        holds.devices_suffice, fires=("arguments",),
    ),
    Rule(
        "MC02", "refused", ("ep", "etp", "dp"),
        "tp {tp} x cp {cp} x dp {dp} x pp {pp} ranks do not divide by etp {etp} x ep {ep} x pp {pp}",
        holds.expert_grid_fits, fires=("build",),
    ),
    Rule("MC05", "refused", ("tp",), "tp {tp} does not divide the {heads} attention heads", holds.heads_split,
         fires=("config",)),
    Rule(
        "MC06", "refused", ("tp",), "tp {tp} does not divide the {kv_heads} key/value heads; releases from 0.16 replicate them",
        kv_heads_divide, fires=("config",), until=REPLICATED_KV_HEADS,
    ),
    Rule(
        "MC06", "refused", ("tp",),
        "tp {tp} neither divides the {kv_heads} key/value heads nor is a multiple of them",
        holds.kv_heads_split_or_replicate, fires=("config",), since=REPLICATED_KV_HEADS,
    ),
    Rule(
        "MC39", "refused", ("cp", "tp", "cp_kind"),
        "cp-comm-type a2a over cp {cp} needs heads ({heads}; {kv_heads} for keys and values) that divide by tp {tp} x cp",
        holds.heads_scatter_over_cp, fires=("first_step",),
    ),
    Rule("MC43", "refused", ("tp", "cp"), _LINEAR + "; this release has no context parallelism for it",
         linear_heads_split_without_context, fires=("config",), since=LINEAR_ATTENTION, until=LINEAR_CONTEXT_PARALLEL),
    Rule("MC43", "refused", ("tp", "cp"), _LINEAR, linear_heads_split, fires=("config",), since=LINEAR_CONTEXT_PARALLEL),
    Rule(
        "MC51", "refused", ("tp", "etp"),
        "tp {tp} does not divide the feed-forward sizes (dense {dense_ffn}, shared {shared_ffn}) "
        "or etp {etp} those of experts ({expert_ffn})",
        holds.ffn_splits, fires=("build",),
    ),
    Rule(
        "MC52", "refused", ("optimizer_replicas",),
        "{optimizer_replicas} instances of the distributed optimizer do not divide the data parallel ranks",
        optimizer_instances_divide, fires=("build",),
    ),
)  # fmt: skip
