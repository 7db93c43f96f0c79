"""How much work reaches the modules before the language model, per row of the language model.

Joint samples say it; rows are then taken at the mean for time and at the worst sample for memory. Other forms of lengths say
nothing about it: every token of the language model is taken as one that came over its edges (an upper bound, which the plan
tells), in units of one image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from solver.problem import Problem
from solver.problem.model import Module
from solver.problem.samples import module_tokens

IMAGE_TOKENS: Final = 4096
"""patches of an image where neither samples nor a table of positions tell: 896 x 896 pixels in patches of 14"""


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens of a module's own sequence per row: `mean_tokens` over the batch, `most_tokens` in the worst row, in sequences of
    `unit_tokens` that attention does not cross."""

    mean_tokens: float
    most_tokens: float
    unit_tokens: int


def encoder_loads(problem: Problem) -> tuple[Load, ...]:
    """The load of every module but the last, in their order."""
    modules = problem.model.modules
    if modules is None:
        return ()
    if problem.workload.sequence_lengths.samples is not None:
        return tuple(_sampled(problem, modules, module) for module in modules[:-1])
    needed = _all_fed(modules, float(problem.workload.max_sequence_length))
    return tuple(_unsampled(module, needed[module.name]) for module in modules[:-1])


def _all_fed(modules: tuple[Module, ...], row_tokens: float) -> dict[str, float]:
    """Tokens of every module when all tokens of the last came over its edges, in equal shares."""
    needed = dict.fromkeys((module.name for module in modules), 0.0)
    needed[modules[-1].name] = row_tokens
    for module in reversed(modules):
        for edge in module.inputs:
            needed[edge.source] += needed[module.name] / len(module.inputs) / edge.tokens_ratio
    return needed


def _unsampled(module: Module, tokens: float) -> Load:
    positions = module.transformer.learned_positions if module.transformer is not None else None
    unit = min(positions or IMAGE_TOKENS, max(1.0, tokens))
    return Load(tokens, tokens, max(1, round(unit)))


def _sampled(problem: Problem, modules: tuple[Module, ...], module: Module) -> Load:
    """Packed: full rows of samples in their proportion; padded: one sample a row."""
    row_tokens = float(problem.workload.max_sequence_length)
    padded = problem.workload.batching[0] == "padded"
    weight = tokens = squares = language = most = 0.0
    for own, count in problem.workload.sequence_lengths.samples or ():
        of = module_tokens(modules, own)
        here, last = of[module.name], max(1.0, min(of[modules[-1].name], row_tokens))
        weight += count
        tokens += count * here
        squares += count * here * here
        language += count * last
        most = max(most, here if padded else row_tokens * here / last)
    mean = tokens / weight if padded else row_tokens * tokens / language
    return Load(mean, most, max(1, round(squares / tokens)) if tokens else 1)
