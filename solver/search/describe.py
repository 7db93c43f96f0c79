"""One-line summaries of layouts, and why one plan beats another."""

from __future__ import annotations

from solver.layout import Layout
from solver.plan import Explanation, Plan
from solver.problem import Problem

TRIVIAL_FRACTION = 0.002
AXIS_WORDS = {
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert communication",
    "pp": "pipeline communication",
    "dp": "gradient and parameter communication",
}


def summary(layout: Layout) -> str:
    """Groups with their layers or shares, degrees, states, recompute."""
    first = layout.stages[0]
    groups = _groups(layout)
    words = [groups] if groups else []
    part = first.parts[0]
    degrees = [f"{axis} {part.size(axis)}" for axis in ("tp", "cp", "ep", "etp") if part.size(axis) > 1]
    degrees += [f"pp {layout.pp}"] + ([f"vpp {layout.vpp}"] if layout.schedule.kind == "interleaved" else [])
    degrees += [] if layout.schedule.kind in ("1f1b", "interleaved") else [layout.schedule.kind.replace("_", " ")]
    degrees.append(f"dp {sum(entry.size('dp') for entry in first.parts)}")
    degrees.append(f"mbs {layout.mbs}")
    words.append(", ".join(degrees))
    words.append(f"zero {first.strategy.shard.zero}")
    if first.strategy.offload.optimizer:
        words.append(f"{first.strategy.offload.optimizer:.0%} of the optimizer in host memory")
    words.append(_recompute(layout))
    return "; ".join(words)


def _groups(layout: Layout) -> str:
    layers: dict[str, int] = {}
    shares: dict[str, float] = {}
    for stage in layout.stages:
        for part in stage.parts:
            layers[part.group] = layers.get(part.group, 0) + len(stage.layers)
            shares[part.group] = shares.get(part.group, 0.0) + part.share / layout.pp
    if len(layers) == 1:
        return f"{next(iter(layers))} only" if layout.idle_devices else ""
    if all(len({part.group for part in stage.parts}) == 1 for stage in layout.stages):
        return ", ".join(f"{count} layers on {name}" for name, count in layers.items())
    return ", ".join(f"{share:.0%} of the batch on {name}" for name, share in shares.items())


def _recompute(layout: Layout) -> str:
    counts: dict[str, int] = {}
    for stage in layout.stages:
        for layer in stage.layers:
            kind = stage.recompute_of(layer).kind
            counts[kind] = counts.get(kind, 0) + 1
    if set(counts) <= {"none"}:
        return "no recompute"
    return "recompute " + ", ".join(f"{kind} on {count} layers" for kind, count in counts.items() if kind != "none")


def components(plan: Plan) -> dict[str, float]:
    """Seconds of the step by cause."""
    breakdown = plan.prediction.time_breakdown_s
    parts = {AXIS_WORDS[axis]: entry.exposed for axis, entry in breakdown.communication.items()}
    parts |= {"computing": breakdown.compute, "pipeline bubble": breakdown.bubble, "imbalance": breakdown.imbalance}
    parts["optimizer step"] = breakdown.optimizer
    return parts


def why_slower(best: Plan, other: Plan) -> str:
    """The causes that cost the other plan most against the best."""
    ours, theirs = components(best), components(other)
    step = best.prediction.step_time_s
    gains = sorted(((theirs.get(name, 0.0) - ours.get(name, 0.0), name) for name in {**ours, **theirs}), reverse=True)
    worse = [f"{seconds:+.3g} s {name}" for seconds, name in gains[:2] if seconds > TRIVIAL_FRACTION * step]
    idle = sum(entry.count for entry in other.layout.idle_devices) - sum(entry.count for entry in best.layout.idle_devices)
    if idle > 0:
        worse.append(f"{idle} more devices idle")
    if not worse:
        return "practically the same time"
    better = [f"{seconds:+.3g} s {name}" for seconds, name in reversed(gains[-1:]) if seconds < -TRIVIAL_FRACTION * step]
    return ", ".join(worse) + (f" (against {better[0]})" if better else "")


def explain(plan: Plan, runner_up: Plan | None) -> tuple[Explanation, ...]:
    """What shaped the plan: unlike groups, memory, the largest loss, the runner-up."""
    found = [*_unlike(plan.layout), _memory(plan), _largest_loss(plan)]
    if runner_up is not None:
        slower = runner_up.prediction.step_time_s / plan.prediction.step_time_s - 1.0
        text = f"{summary(runner_up.layout)}: {slower:+.1%}; {why_slower(plan, runner_up)}."
        found.append(Explanation(code="runner_up", text=text))
    return tuple(found)


def _unlike(layout: Layout) -> list[Explanation]:
    per_replica = {
        part.group: (part.micro_batches, part.share / part.size("dp")) for stage in layout.stages for part in stage.parts
    }
    if len(per_replica) < 2:
        return []
    if len({micro for micro, _ in per_replica.values()}) > 1:
        shares = ", ".join(f"{micro} micro-batches on {name}" for name, (micro, _) in per_replica.items())
        return [Explanation(code="shares_follow_speed", text=f"Replicas take what they can finish in time: {shares}.")]
    layers: dict[str, list[int]] = {}
    for stage in layout.stages:
        layers.setdefault(stage.parts[0].group, []).append(len(stage.layers))
    text = ", ".join(f"{min(counts)} to {max(counts)} layers a stage on {name}" for name, counts in layers.items())
    return [Explanation(code="layers_follow_speed", text=f"Stages hold what keeps them in step: {text}.")]


def _memory(plan: Plan) -> Explanation:
    fullest = max(plan.prediction.memory_bytes, key=lambda entry: entry.device_interval[1] / entry.limit)
    used = fullest.device_interval[1] / fullest.limit
    items = sorted(fullest.items.items(), key=lambda item: -item[1])[:2]
    text = (
        f"Stage {fullest.stage} on {fullest.group} is the fullest: the upper end of its interval is {used:.0%} of the limit; "
        + ", ".join(f"{name} {value / 1e9:.1f} GB" for name, value in items)
        + "."
    )
    return Explanation(code="memory_binds" if used > 0.9 else "memory_free", text=text)


def _largest_loss(plan: Plan) -> Explanation:
    parts = {name: seconds for name, seconds in components(plan).items() if name != "computing"}
    name = max(parts, key=lambda key: parts[key])
    share = parts[name] / plan.prediction.step_time_s
    return Explanation(code="largest_loss", text=f"Beside computing, the step spends most on {name}: {share:.1%}.")


def time_to_finish(problem: Problem, plan: Plan) -> tuple[Explanation, ...]:
    """Hours and money until `workload.total_tokens` are trained."""
    total = problem.workload.total_tokens
    if total is None:
        return ()
    hours = total / plan.prediction.tokens_per_s / 3600.0
    text = f"{total:.4g} tokens take {hours:.4g} hours"
    if plan.prediction.cost is not None:
        cost = plan.prediction.cost
        text += f" and cost {cost.per_1e9_tokens * total / 1e9:.4g} {cost.currency}"
    return (Explanation(code="time_to_finish", text=text + "."),)
