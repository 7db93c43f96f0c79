"""Joint samples of several modules: what every module takes in of one sample, and the lengths of the last module.

A module takes its own tokens and, over every edge, `tokens_ratio` tokens for each token of the source.
"""

from __future__ import annotations

from math import ceil

from solver.problem.findings import Findings
from solver.problem.lengths import MAX_LENGTH_TOKENS, SequenceLengths
from solver.problem.model import Module


def module_tokens(modules: tuple[Module, ...], own: dict[str, int]) -> dict[str, float]:
    """Tokens that every module works on, in their order."""
    tokens: dict[str, float] = {}
    for module in modules:
        fed = sum(tokens[edge.source] * edge.tokens_ratio for edge in module.inputs)
        tokens[module.name] = own.get(module.name, 0) + fed
    return tokens


def complete_lengths(lengths: SequenceLengths, modules: tuple[Module, ...] | None, findings: Findings) -> SequenceLengths:
    """Samples with the counts of the last module that follow from them; other forms as they are."""
    if lengths.samples is None:
        return lengths
    path = ("workload", "sequence_lengths", "samples")
    if modules is None:
        findings.add(path, "conflict", "joint samples need a model of several modules")
        return lengths
    names = [module.name for module in modules]
    counts = []
    for index, (own, count) in enumerate(lengths.samples):
        unknown = [name for name in own if name not in names]
        for name in unknown:
            findings.add((*path, index, 0, name), "unknown_name", f"no module is called {name[:80]!r}", names)
        if unknown or not _sound(modules):
            continue
        length = ceil(module_tokens(modules, own)[names[-1]])
        if not 1 <= length <= MAX_LENGTH_TOKENS:
            findings.add((*path, index), "out_of_range", f"the sample gives the last module {length} tokens")
            continue
        counts.append((length, count))
    return lengths.model_copy(update={"counts": tuple(counts)}) if counts else lengths


def _sound(modules: tuple[Module, ...]) -> bool:
    """Every edge comes from a module before it (what does not was noted with the modules)."""
    seen: set[str] = set()
    for module in modules:
        if any(edge.source not in seen for edge in module.inputs):
            return False
        seen.add(module.name)
    return True
