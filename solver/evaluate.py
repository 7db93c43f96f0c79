"""Problem + layout -> prediction: the scalar call is a batch of one over the kernels that the search uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from solver.balance.breakdown import time_breakdown
from solver.balance.ledger import Assembled, assemble
from solver.certify.constraints import constraint_findings
from solver.cost import columns as col
from solver.cost.architecture import (
    LayerKind,
    attention_flops_per_work,
    head_forward_flops_per_token,
    padded_vocabulary,
    projection_flops_per_token,
)
from solver.cost.encoders import encoder_flops_per_row, encoder_notes
from solver.cost.memory_kernels import (
    ACTIVATIONS,
    BUFFERS,
    CONTEXT,
    DEVICE,
    DEVICE_HIGH,
    GRADIENTS,
    HOST,
    LOGITS,
    OPTIMIZER,
    WEIGHTS,
    WORKSPACE,
)
from solver.cost.scenarios import WHOLE, Reach
from solver.cost.table import CostModel, cost_model
from solver.dimensions.words import expand_uniform
from solver.exporters import expressible_in
from solver.frameworks import get_rule_set
from solver.layout import Layout, UniformLayout
from solver.layout_parse import parse_layout
from solver.plan import Cost, Evaluation, MemoryEntry, Plan, Prediction, Versions, Violation, plan_id
from solver.problem import Problem, normal_form
from solver.versions import versions

MFU_CONVENTION = "model FLOPs / time / sum of peaks of the devices used; causal attention counted half; real tokens"
NINETY_PERCENT = 1.645
"""half width of a central 90 % interval in standard deviations"""
POWER_FRACTION = 0.8
"""mean draw of a training step over the device's rated power"""
TIGHT_MEMORY_FRACTION = 0.90
ITEMS = (
    ("weights", WEIGHTS),
    ("gradients", GRADIENTS),
    ("optimizer", OPTIMIZER),
    ("activations", ACTIVATIONS),
    ("workspace", WORKSPACE),
    ("logits", LOGITS),
    ("buffers", BUFFERS),
)
ALWAYS_SHOWN = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True)
class Evaluator:
    """Evaluations of one normalised problem; compiles its cost model once."""

    problem: Problem

    @cached_property
    def model(self) -> CostModel:
        return cost_model(self.problem)

    @cached_property
    def context(self) -> dict[str, Any]:
        """What a plan id depends on besides the layout."""
        return normal_form(self.problem)

    def evaluate(self, document: Mapping[str, Any]) -> Evaluation:
        """Verdict of a layout document (classical words or written out); raises InvalidProblem when it is malformed.

        The violations of a legal layout are what the framework changes and says so.
        """
        parsed = parse_layout(document)
        rules = get_rule_set(self.problem.framework.name, self.problem.framework.version)
        violations = rules.violations(self.problem, parsed)
        if violations:
            return Evaluation(verdict="illegal", violations=violations, plan=None)
        layout = expand_uniform(self.problem, parsed) if isinstance(parsed, UniformLayout) else parsed
        violations = (*rules.violations(self.problem, layout), *self._broken_constraints(parsed, layout))
        if violations:
            return Evaluation(verdict="illegal", violations=violations, plan=None)
        plan = self.plan(layout)
        violations = tuple(self._broken_caps(plan))
        if violations:
            return Evaluation(verdict="illegal", violations=violations, plan=plan)
        verdict: Literal["ok", "does_not_fit"] = "does_not_fit" if plan.prediction.verdict == "no" else "ok"
        return Evaluation(verdict=verdict, violations=rules.changes(self.problem, layout), plan=plan)

    def _broken_constraints(self, parsed: Layout | UniformLayout, layout: Layout) -> Iterator[Violation]:
        """What the problem fixes, allows or caps, and the global batch that classical words may state."""
        for finding in constraint_findings(self.problem, layout):
            yield Violation(rule="constraints", severity="refused", message=finding)
        stated = parsed.gbs if isinstance(parsed, UniformLayout) else None
        if stated is not None and stated != layout.global_batch_sequences():
            message = f"gbs {stated} is stated, dp x mbs x micro-batches gives {layout.global_batch_sequences()}"
            nearest: dict[str, Any] = {"gbs": [layout.global_batch_sequences()]}
            yield Violation(rule="gbs", severity="refused", message=message, values={"gbs": stated}, nearest=nearest)

    def _broken_caps(self, plan: Plan) -> Iterator[Violation]:
        """Caps on time and money, which need the prediction."""
        constraints = self.problem.constraints
        step_s = plan.prediction.step_time_s
        if constraints.max_step_time_s is not None and step_s > constraints.max_step_time_s:
            message = f"a step takes {step_s:.4g} s, at most {constraints.max_step_time_s:g} s are allowed"
            yield Violation(rule="constraints", severity="refused", message=message, values={"step_time_s": step_s})
        price = self.price_per_hour(_used_devices(self.problem, plan.layout))
        if constraints.max_price_per_hour is not None and price is not None and price > constraints.max_price_per_hour:
            message = f"the devices cost {price:g} an hour, at most {constraints.max_price_per_hour:g} are allowed"
            yield Violation(rule="constraints", severity="refused", message=message, values={"price_per_hour": price})

    def plan(self, layout: Layout) -> Plan:
        """The plan of a legal layout."""
        assembled = assemble(self.model, layout)
        stamp = Versions(**versions())
        expressible = expressible_in(self.problem, layout)
        return Plan(
            id=plan_id(self.context, layout, stamp),
            layout=layout,
            prediction=self.prediction(assembled),
            expressible_in=expressible,
            warnings=self._warnings(assembled, expressible),
            versions=stamp,
        )

    def prediction(self, assembled: Assembled) -> Prediction:
        """Time, rates, memory, cost and energy of an assembled layout."""
        per_scenario = assembled.step_seconds()
        step_s = float(per_scenario.mean())
        devices = _devices_used(assembled)
        total_devices = sum(devices)
        tokens = self.model.scenarios.real_tokens * self._batch_ratio(assembled)
        tokens_per_s = float(tokens.mean()) / step_s
        memory = memory_entries(assembled)
        return Prediction(
            step_time_s=step_s,
            step_time_interval_s=self._interval(per_scenario),
            tokens_per_s=tokens_per_s,
            tokens_per_s_per_device=tokens_per_s / total_devices,
            mfu=self._model_flops(assembled) / step_s / self._peak_flops_per_s(devices),
            mfu_convention=MFU_CONVENTION,
            padding_fraction=self.model.scenarios.padding_fraction,
            time_breakdown_s=time_breakdown(assembled),
            memory_bytes=memory,
            verdict=_least_verdict(memory),
            cost=self._cost(devices, tokens_per_s),
            energy_joules=self._energy_joules(devices, step_s),
            provenance={
                "compute": "fitted",
                "communication": "fitted",
                "bubble": "analytical",
                "imbalance": "analytical",
                "optimizer": "analytical",
                "memory": "fitted",
            },
        )

    def _batch_ratio(self, assembled: Assembled) -> float:
        """Rows dealt over rows of the problem (a tolerated batch may differ)."""
        return assembled.laid_out.layout.global_batch_sequences() / self.model.scenarios.rows

    def _interval(self, per_scenario: np.ndarray) -> tuple[float, float]:
        """Central 90 %: the profile's model error and the sampling of scenarios, added as variances."""
        mean = float(per_scenario.mean())
        model_error = self.problem.workload.software.assumptions["time_error_fraction"] * mean
        spread = float(per_scenario.std(ddof=1)) / len(per_scenario) ** 0.5 if len(per_scenario) > 1 else 0.0
        half = float(np.hypot(model_error, NINETY_PERCENT * spread))
        return mean - half, mean + half

    def sampling_interval(self, layout: Layout) -> tuple[float, float] | None:
        """Central 90 % interval of the mean over scenarios, None when lengths are constant."""
        per_scenario = assemble(self.model, layout).step_seconds()
        if len(per_scenario) < 2:
            return None
        half = NINETY_PERCENT * float(per_scenario.std(ddof=1)) / len(per_scenario) ** 0.5
        return float(per_scenario.mean()) - half, float(per_scenario.mean()) + half

    def _model_flops(self, assembled: Assembled) -> float:
        """FLOPs of one step without recompute, causal attention counted half (cost_models 1.5), mean over scenarios."""
        shape = self.model.architecture
        tokens = float(self.model.scenarios.real_tokens.mean())
        flops = tokens * head_forward_flops_per_token(shape.model)
        counts = [int((shape.kind_of_layer == index).sum()) for index in range(len(shape.kinds))]
        if shape.mtp_layers:
            counts[-1] = shape.mtp_layers
        for kind, count in zip(shape.kinds, counts, strict=True):
            squares = self._squares(kind)
            flops += count * (
                tokens * projection_flops_per_token(kind, shape.model.hidden_size) + squares * attention_flops_per_work(kind)
            )
        return (3.0 * flops + self.model.scenarios.rows * encoder_flops_per_row(self.problem)) * self._batch_ratio(assembled)

    def _squares(self, kind: LayerKind) -> float:
        """Squares of the documents' lengths that a layer's attention sees, mean over scenarios."""
        attention = kind.attention
        if attention is None or attention.kind == "linear":
            return 0.0
        reach: Reach = (attention.window_tokens, attention.chunk_tokens) if attention.kind == "softmax" else WHOLE
        return self.model.scenarios.real_squares[reach]

    def _peak_flops_per_s(self, devices: list[int]) -> float:
        total = 0.0
        for group, count in zip(self.problem.cluster.groups, devices, strict=True):
            precision = group.precision or self.problem.workload.precision
            total += count * group.device.peak_flops_per_s[precision]
        return total

    def price_per_hour(self, devices: list[int]) -> float | None:
        """Price of the devices used, None when one of their groups has no price."""
        total = 0.0
        for group, count in zip(self.problem.cluster.groups, devices, strict=True):
            if count and group.price_per_device_hour is None:
                return None
            total += count * (group.price_per_device_hour or 0.0)
        return total

    def _cost(self, devices: list[int], tokens_per_s: float) -> Cost | None:
        price = self.price_per_hour(devices)
        if price is None:
            return None
        return Cost(per_1e9_tokens=price / 3600.0 / tokens_per_s * 1e9, currency=self.problem.cluster.currency or "")

    def _energy_joules(self, devices: list[int], step_s: float) -> float | None:
        watts = 0.0
        for group, count in zip(self.problem.cluster.groups, devices, strict=True):
            if count and group.device.power_w is None:
                return None
            watts += count * (group.device.power_w or 0.0)
        return POWER_FRACTION * watts * step_s

    def _warnings(self, assembled: Assembled, expressible: tuple[str, ...]) -> tuple[str, ...]:
        layout = assembled.laid_out.layout
        notes = []
        if not expressible:
            notes.append("No supported framework can run this layout as it is; a search that names one finds the best it can.")
        shares = {round(part.share / part.size("dp"), 12) for stage in layout.stages for part in stage.parts}
        if len(shares) > 1:
            notes.append("Replicas take unequal shares of the batch: weight the loss by tokens, not by replica.")
        if layout.idle_devices:
            idle = ", ".join(f"{entry.count} {entry.group}" for entry in layout.idle_devices)
            notes.append(f"Idle devices: {idle}.")
        tightest = max(entry.device / entry.capacity for entry in memory_entries(assembled))
        if tightest > TIGHT_MEMORY_FRACTION:
            notes.append("A rank uses over 90 % of its memory: published runs lose 8 % of speed and more there.")
        notes += [*self._loading_notes(assembled), *self._vocabulary_notes(layout)]
        if any(kind.mlp is not None and kind.mlp.kind == "moe" for kind in self.model.architecture.kinds):
            notes.append("Expert times are from microbenchmarks, uncalibrated on end-to-end runs: expect a wider error.")
        return (*notes, *encoder_notes(self.problem))

    def _loading_notes(self, assembled: Assembled) -> Iterator[str]:
        """Runs that train but do not resume: a checkpoint's optimizer states beside the allocated ones (Megatron-LM#1509)."""
        copies = self.problem.workload.software.assumptions["load_copy_fraction"]
        for entry in memory_entries(assembled):
            states = sum(entry.items.get(name, 0.0) for name in ("weights", "gradients", "optimizer"))
            loading = states + copies * entry.items.get("optimizer", 0.0) + entry.context
            if entry.device <= entry.limit < loading:
                yield (
                    f"Stage {entry.stage} on {entry.group} trains in {entry.device:.3g} bytes, but loading a checkpoint onto the "
                    f"device may need {loading:.3g}: load the optimizer states to host memory first."
                )
                return

    def _vocabulary_notes(self, layout: Layout) -> Iterator[str]:
        """Rows that the software adds to the vocabulary."""
        rows, part = self.model.architecture.model.vocab_size, layout.stages[-1].parts[0]
        multiple = self.problem.workload.software.assumptions["vocabulary_multiple"]
        padded = int(padded_vocabulary(rows, np.array(part.size("tp")), multiple))
        if padded > rows:
            yield f"The vocabulary of {rows} is padded to {padded} rows, a multiple of {multiple:g} x tp {part.size('tp')}."


def evaluate(problem: Problem, document: Mapping[str, Any]) -> Evaluation:
    """Evaluate one layout document against a normalised problem."""
    return Evaluator(problem).evaluate(document)


def memory_entries(assembled: Assembled) -> tuple[MemoryEntry, ...]:
    """Itemised bytes of the worst rank of every stage and group."""
    layout = assembled.laid_out.layout
    entries = []
    for index, stage in enumerate(layout.stages):
        worst: dict[str, int] = {}
        for chain, entry in enumerate(assembled.laid_out.chains):
            group = stage.parts[entry.parts[index]].group
            if group not in worst or assembled.memory[chain, index, DEVICE] > assembled.memory[worst[group], index, DEVICE]:
                worst[group] = chain
        entries += [_memory_entry(assembled, index, group, chain) for group, chain in worst.items()]
    return tuple(entries)


def _memory_entry(assembled: Assembled, stage: int, group: str, chain: int) -> MemoryEntry:
    bytes_of = assembled.memory[chain, stage]
    position = int(assembled.laid_out.points[assembled.laid_out.point_at[chain, stage], col.POINT_GROUP])
    items = {name: float(bytes_of[column]) for name, column in ITEMS if name in ALWAYS_SHOWN or bytes_of[column] > 0.0}
    allocated = sum(items.values())
    dynamic = allocated - float(bytes_of[WEIGHTS] + bytes_of[GRADIENTS] + bytes_of[OPTIMIZER])
    allocator = dynamic * (float(assembled.model.scalars[col.ALLOCATOR_FACTOR]) - 1.0)
    device = float(bytes_of[DEVICE])
    error = float(bytes_of[DEVICE_HIGH]) - device
    limits = assembled.model.groups[position]
    host = float(bytes_of[HOST])
    if host > limits[col.HOST_LIMIT_BYTES] or device > limits[col.LIMIT_BYTES]:
        verdict = "no"
    else:
        verdict = "safe" if device + error <= limits[col.LIMIT_BYTES] else "fits"
    return MemoryEntry(
        module=assembled.model.problem.planned_module,
        stage=stage,
        group=group,
        items=items,
        allocated=allocated,
        allocator=allocator,
        reserved=allocated + allocator,
        context=float(bytes_of[CONTEXT]),
        device=device,
        device_interval=(device - error, device + error),
        limit=float(limits[col.LIMIT_BYTES]),
        capacity=float(limits[col.CAPACITY_BYTES]),
        host=host if host > 0.0 else None,
        verdict=verdict,
    )


def _least_verdict(memory: tuple[MemoryEntry, ...]) -> Any:
    order = ("no", "fits", "safe")
    return min((entry.verdict for entry in memory), key=order.index)


def _devices_used(assembled: Assembled) -> list[int]:
    return _used_devices(assembled.model.problem, assembled.laid_out.layout)


def _used_devices(problem: Problem, layout: Layout) -> list[int]:
    """Devices in use per group of the problem."""
    names = [group.name for group in problem.cluster.groups]
    used = [0] * len(names)
    for stage in layout.stages:
        for part in stage.parts:
            used[names.index(part.group)] += part.device_count
    return used
