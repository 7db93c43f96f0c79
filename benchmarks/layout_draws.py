"""Random legal layouts of a problem, and neighbours of a given one: witnesses that the search has not seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from solver.cost import columns as col
from solver.cost.laid_out import option_of
from solver.frameworks import get_rule_set
from solver.layout import Layout
from solver.problem import Problem
from solver.replay.layouts import layout_document
from solver.replay.options import Options
from solver.replay.space import REPLICAS, STAGES, Cell, leaves_of
from solver.replay.splits import split_bounds

TRIES_PER_LAYOUT = 4000
Document = dict[str, Any]


class NotEnoughLayouts(Exception):
    """Legal layouts are too rare to draw as many as wanted."""


def random_layouts(problem: Problem, options: Options, rng: random.Random, count: int) -> Iterator[Document | Layout]:
    """`count` legal layouts: classical words; over two groups also written-out layouts with unequal shares and uneven stages."""
    draws: list[Callable[[], Document | Layout | None]] = [lambda: _words(problem, options, rng)]
    if len(problem.cluster.groups) > 1:
        draws += [lambda: _unlike_stages(problem, options, rng), lambda: _unlike_replicas(problem, options, rng)]
        if not options.rules.capabilities.unequal_shares:
            draws.pop()
    for number in range(count):
        draw = draws[number % len(draws)]
        yield next(found for found in _tries(draw) if found is not None)


def _tries(draw: Callable[[], Document | Layout | None]) -> Iterator[Document | Layout | None]:
    for _ in range(TRIES_PER_LAYOUT):
        yield draw()
    raise NotEnoughLayouts


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]


def _batch(options: Options, rng: random.Random, most: int) -> tuple[int, int]:
    """(dp, mbs) that divide the batch."""
    rows = options.model.scenarios.rows
    dp = rng.choice([value for value in _divisors(rows) if value <= max(1, most)])
    mbs = rng.choice([value for value in options.mbs if rows // dp % value == 0] or [1])
    return dp, mbs


def _words(problem: Problem, options: Options, rng: random.Random) -> Document | None:
    """A legal layout in classical words that uses most of its devices."""
    names = [group.name for group in problem.cluster.groups]
    groups = rng.sample(names, rng.randint(1, min(2, len(names))))
    devices = sum(options.devices(names.index(name)) for name in groups)
    tp, cp = rng.choice(options.tp), rng.choice(options.cp)
    most_pp = devices // (tp * cp)
    if most_pp == 0:
        return None
    pp = rng.choice([value for value in range(1, min(most_pp, options.layers, 24) + 1)])
    dp, mbs = _batch(options, rng, most_pp // pp)
    words: Document = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "mbs": mbs}
    words["ep"] = rng.choice(options.ep)
    words["etp"] = rng.choice(options.etp) if rng.random() < 0.3 else 1
    words["vpp"] = rng.choice(_divisors(options.layers // pp)) if pp > 1 else 1
    words["schedule"] = "interleaved" if words["vpp"] > 1 else "1f1b"
    if rng.random() < 0.3:
        shapes = list(options.shapes(pp))
        words["schedule"], words["vpp"], _ = rng.choice(shapes) if shapes else ("1f1b", 1, "even")
    words["zero"] = rng.choice(options.rules.capabilities.zero_levels)
    words["recompute"] = rng.choice(["none", "selective", "full", "full"])
    words["offload_optimizer"] = rng.choice([0.0, 0.0, 0.5, 1.0])
    if len(names) > 1:
        words["groups"] = groups
    document = {name: value for name, value in words.items() if _allowed(options, name, value)}
    return document if len(document) == len(words) else None


def _allowed(options: Options, word: str, value: Any) -> bool:
    return word not in options.limits or value in options.limits[word]


def _legal(problem: Problem, layout: Layout) -> Layout | None:
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    return None if rules.violations(problem, layout) else layout


def _recompute(options: Options, bounds: np.ndarray, rng: random.Random) -> list[int]:
    """Everything recomputed, or (where layers are free) the first layers of every stage."""
    chosen = [col.OPTION_FULL] * options.layers
    if options.rules.capabilities.per_layer_recompute == "any":
        for first, after in pairwise(bounds):
            kept = rng.randint(0, int(after - first))
            for layer in range(int(after) - kept, int(after)):
                chosen[layer] = rng.choice([col.OPTION_SELECTIVE, col.OPTION_NONE])
    return chosen


def _random_cut(layers: int, stages: int, rng: random.Random) -> np.ndarray:
    """Layers per stage within about a third of each other."""
    weights = [rng.uniform(0.8, 1.2) for _ in range(stages)]
    edges = np.cumsum([0.0, *weights]) / sum(weights) * layers
    return np.round(edges).astype(np.int64)


def _unlike_stages(problem: Problem, options: Options, rng: random.Random) -> Layout | None:
    """First stages on one group, the rest on the other, any number of layers on every stage."""
    groups = tuple(rng.sample(range(len(problem.cluster.groups)), 2))
    tp = (rng.choice(options.tp), rng.choice(options.tp))
    if not options.rules.capabilities.per_stage_degrees:
        tp = (tp[0], tp[0])
    cp = rng.choice(options.cp)
    dp, mbs = _batch(options, rng, min(options.devices(group) for group in groups) // (cp * max(tp)))
    most = [options.devices(group) // (size * cp * dp) for group, size in zip(groups, tp, strict=True)]
    if min(most) < 1 or sum(most) > options.layers:
        return None
    depth = [rng.randint(max(1, room // 2), room) for room in most]
    rows = options.model.scenarios.rows
    kind = rng.choice(options.cp_kinds(cp))
    cell = Cell(
        STAGES, groups, tp, cp, kind, 1, 1, sum(depth), rng.choice(options.plain_schedules(2) or ["1f1b"]), 1, mbs, "balanced",
        rows, dp, rows // (dp * mbs), depth[0], depth[0],
    )  # fmt: skip
    bounds = _random_cut(options.layers, sum(depth), rng)
    zero = rng.choice(options.rules.capabilities.zero_levels)
    layout = layout_document(options, cell, _recompute(options, bounds, rng), zero, False, rng.choice([0, 0, 50]), bounds)
    return _legal(problem, layout)


def _unlike_replicas(problem: Problem, options: Options, rng: random.Random) -> Layout | None:
    """Replicas on two groups with unequal shares of the batch."""
    tp, cp = rng.choice(options.tp), rng.choice(options.cp)
    room = [options.devices(group) // (tp * cp) for group in (0, 1)]
    if min(room) < 1 or not options.model.collectives_cross(0, 1):
        return None
    pp = rng.randint(1, min(*room, 8))
    dp = (rng.randint(1, room[0] // pp), rng.randint(1, room[1] // pp))
    mbs, rows = rng.choice(options.mbs), options.model.scenarios.rows
    kind = rng.choice(options.cp_kinds(cp))
    cell = Cell(REPLICAS, (0, 1), (tp, tp), cp, kind, 1, 1, pp, "1f1b", 1, mbs, "even", rows, dp, None)
    shares = list(leaves_of(options, cell)) if rows % mbs == 0 else []
    if not shares:
        return None
    bounds = _random_cut(options.layers, pp, rng)
    zero = rng.choice(options.rules.capabilities.zero_levels)
    recompute = _recompute(options, bounds, rng)
    layout = layout_document(options, rng.choice(shares), recompute, zero, False, rng.choice([0, 0, 50]), bounds)
    return _legal(problem, layout)


def neighbours(problem: Problem, options: Options, layout: Layout, rng: random.Random, count: int) -> Iterator[Layout]:
    """Legal layouts one or two changes away: a layer moved, another recompute, state, share, degree or micro-batch."""
    cell = cell_of(options, layout)
    bounds = np.cumsum([0, *(last - first + 1 for _, _, (first, last) in layout.virtual_stages())])
    recompute = _options_of(options, layout)
    state = (layout.stages[0].strategy.shard.zero, round(100 * layout.stages[0].strategy.offload.optimizer))
    found: set[str] = set()
    for _ in range(50 * count):
        changed = _changed(options, cell, bounds, recompute, state, rng)
        try:
            document = _legal(problem, changed) if changed is not None else None
        except (ValueError, IndexError, StopIteration, AssertionError):
            continue
        if document is not None and str(document) not in found:
            found.add(str(document))
            yield document
        if len(found) == count:
            return


def beside_the_space(options: Options, layout: Layout) -> str | None:
    """Why a layout of legal degrees is not in the stated space: its cut or its recompute follows none of the rules."""
    cell = cell_of(options, layout)
    bounds = np.cumsum([0, *(last - first + 1 for _, _, (first, last) in layout.virtual_stages())])
    rules = ["balanced"] if cell.family == STAGES else list(dict.fromkeys(split for _, _, split in options.shapes(cell.pp)))
    if not any(np.array_equal(bounds, split_bounds(options, replace(cell, split=rule))) for rule in rules):
        return "its cut of the layers is none of those that are searched"
    chosen = _options_of(options, layout)
    pieces = [chosen[int(bounds[k]) : int(bounds[k + 1])] for k in range(cell.pieces)]
    one_count = options.rules.capabilities.per_layer_recompute == "per_stage_count" or layout.schedule.copies > 1
    stages = pieces if one_count else [[option for k in held for option in pieces[k]] for held in cell.pieces_of_stages()]
    for low, high in options.modes():
        counts = [sum(option == high for option in stage) if low != high else 0 for stage in stages]
        longest = max(counts)
        same = not one_count or all(count == min(longest, len(stage)) for count, stage in zip(counts, stages, strict=True))
        first = all(stage == [high] * k + [low] * (len(stage) - k) for k, stage in zip(counts, stages, strict=True))
        if same and first:
            return None
    return "its recompute is not one option on the first layers of every stage and another on the rest"


def cell_of(options: Options, layout: Layout) -> Cell:
    """The skeleton of a layout with at most two parts a stage."""
    names = [group.name for group in options.model.problem.cluster.groups]
    used = tuple(dict.fromkeys(names.index(part.group) for stage in layout.stages for part in stage.parts))
    first = layout.stages[0]
    part = first.parts[0]
    tp = tuple(
        next(p.size("tp") for stage in layout.stages for p in stage.parts if names.index(p.group) == group) for group in used
    )
    unlike = len({part.micro_batches for part in first.parts}) > 1 or len(first.parts) > 1
    whole = all(len(stage.parts) == 1 for stage in layout.stages)
    dp: int | tuple[int, int] = sum(part.size("dp") for part in first.parts)
    micro: int | tuple[int, int] = part.micro_batches
    family, stages, layers = "uniform", None, None
    if len(used) > 1 and whole:
        family = STAGES
        mine = [stage for stage in layout.stages if names.index(stage.parts[0].group) == used[0]]
        stages, layers = len(mine), sum(len(stage.layers) for stage in mine)
    elif len(used) > 1 and unlike and all(len(stage.parts) == 2 for stage in layout.stages):
        family = REPLICAS
        dp = (first.parts[0].size("dp"), first.parts[1].size("dp"))
        micro = (first.parts[0].micro_batches, first.parts[1].micro_batches)
    return Cell(
        family, used, tp, part.size("cp"), first.strategy.cp_kind, part.size("ep"), part.size("etp"), layout.pp,
        layout.schedule.kind, layout.vpp, layout.mbs, "balanced", layout.global_batch_sequences(), dp, micro, stages, layers,
    )  # fmt: skip


def _options_of(options: Options, layout: Layout) -> list[int]:
    found = [0] * options.layers
    for stage in layout.stages:
        for layer in stage.layers:
            found[layer] = option_of(options.model, stage.recompute_of(layer))
    return found


def _changed(
    options: Options, cell: Cell, bounds: np.ndarray, recompute: list[int], state: tuple[int, int], rng: random.Random
) -> Layout | None:
    """One random change of the layout, or two."""
    zero, percent = state
    for _ in range(rng.choice([1, 1, 2])):
        kind = rng.choice(["layer", "recompute", "recompute", "zero", "offload", "degree", "mbs", "shares"])
        if kind == "layer" and len(bounds) > 2:
            bounds = bounds.copy()
            bounds[rng.randrange(1, len(bounds) - 1)] += rng.choice([-1, 1])
        elif kind == "recompute":
            recompute = list(recompute)
            stage = rng.randrange(len(bounds) - 1)
            layers = range(int(bounds[stage]), int(bounds[stage + 1]))
            if options.rules.capabilities.per_layer_recompute != "any":
                layers = range(options.layers)
            option = rng.choice([col.OPTION_NONE, col.OPTION_SELECTIVE, col.OPTION_FULL, col.OPTION_CORE_ATTENTION])
            for layer in list(layers)[: rng.randint(1, max(1, len(layers)))] if rng.random() < 0.5 else layers:
                recompute[layer] = option
        elif kind == "zero":
            zero = rng.choice(options.rules.capabilities.zero_levels)
        elif kind == "offload":
            percent = rng.choice([0, 25, 50, 75, 100])
        elif kind in ("degree", "mbs", "shares"):
            moved = _other_cell(options, cell, kind, rng)
            if moved is None:
                return None
            if moved.pieces != cell.pieces:
                bounds = _random_cut(options.layers, moved.pieces, random.Random(0))
            cell = moved
    if (np.diff(bounds) < 0).any():
        return None
    return layout_document(options, cell, recompute, zero, False, percent, bounds)


def _other_cell(options: Options, cell: Cell, kind: str, rng: random.Random) -> Cell | None:
    """Another tp, pp, vpp, ep or cp with dp to match, another micro-batch, or another share."""
    if kind == "shares":
        if not isinstance(cell.micro_batches, tuple):
            return None
        return rng.choice(list(leaves_of(options, replace(cell, micro_batches=None))))
    if kind == "mbs" or isinstance(cell.dp, tuple) or cell.family == STAGES:
        mbs = rng.choice(options.mbs)
        if isinstance(cell.dp, tuple):
            opened = replace(cell, mbs=mbs, micro_batches=None)
            leaves = list(leaves_of(options, opened)) if cell.rows % mbs == 0 else []
            return rng.choice(leaves) if leaves else None
        if cell.rows % (cell.dp * mbs):
            return None
        return replace(cell, mbs=mbs, micro_batches=cell.rows // (cell.dp * mbs))
    word = rng.choice(["tp", "pp", "shape", "cp", "ep", "etp"])
    if word == "tp":
        tp = rng.choice(options.tp)
        cell = replace(cell, tp=(tp,) * len(cell.groups))
    elif word == "pp":
        cell = replace(cell, pp=max(1, cell.pp + rng.choice([-1, 1, cell.pp])), schedule="1f1b", vpp=1)
    elif word == "shape":
        shapes = list(options.shapes(cell.pp))
        if not shapes:
            return None
        schedule, vpp, _ = rng.choice(shapes)
        cell = replace(cell, schedule=schedule, vpp=vpp)
    else:
        cell = replace(cell, **{word: rng.choice(getattr(options, word))})
    devices = sum(options.devices(group) for group in cell.groups)
    most = devices // (cell.tp[0] * cell.cp * cell.pp)
    sizes = [dp for dp in _divisors(cell.rows) if dp <= most]
    if not sizes:
        return None
    dp = max(sizes) if rng.random() < 0.7 else rng.choice(sizes)
    if cell.rows % (dp * cell.mbs):
        return None
    return replace(cell, dp=dp, micro_batches=cell.rows // (dp * cell.mbs))
