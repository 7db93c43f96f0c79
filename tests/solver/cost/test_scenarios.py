"""Attention work within windows and chunks."""

from __future__ import annotations

import numpy as np
import pytest

from solver.cost.pack_kernels import RAMP_TOKENS
from solver.cost.scenarios import WHOLE, reached_work, scenario_set, work_share
from solver.problem import normalise, parse_problem
from tests.solver.problem.documents import small


def pairs(length: int, window: int | None, chunk: int | None) -> int:
    """Query-key pairs of a causal mask counted one by one."""
    return sum(
        1
        for query in range(length)
        for key in range(query + 1)
        if (window is None or query - key < window) and (chunk is None or query // chunk == key // chunk)
    )


@pytest.mark.parametrize(("window", "chunk"), [(None, None), (8, None), (64, None), (None, 8), (None, 5), (None, 64)])
def test_reached_work_is_twice_the_pairs(window: int | None, chunk: int | None) -> None:
    """Up to one pair a token, the diagonal."""
    for length in (1, 7, 8, 23, 40):
        work = reached_work(np.array([length]), (window, chunk))[0] - RAMP_TOKENS * length
        assert work == pytest.approx(2 * pairs(length, window, chunk), abs=length)


def test_share_keeps_the_mean_and_never_goes_negative() -> None:
    """Least squares through the means, both parts at least zero."""
    generator = np.random.default_rng(3)
    full = generator.uniform(1.0e6, 5.0e6, size=(4, 50))
    reached = 2000.0 * np.sqrt(full)
    share = work_share(full, reached)
    assert share.fixed >= 0.0
    assert share.per_work >= 0.0
    assert share.fixed + share.per_work * full.mean() == pytest.approx(reached.mean())


def problem(attention: dict[str, object], lengths: dict[str, object]) -> object:
    """A small model whose second block has the given attention."""
    base = {"kind": "softmax", "heads": 8}
    mlp = {"kind": "dense", "hidden_size": 512}
    blocks = [{"repeat": 1, "attention": base, "mlp": mlp}, {"repeat": 1, "attention": {**base, **attention}, "mlp": mlp}]
    model = {"transformer": {"hidden_size": 512, "vocab_size": 1000, "blocks": blocks}}
    return normalise(parse_problem(small(model=model, **{"workload.sequence_lengths": lengths})))


def test_constant_lengths_are_exact() -> None:
    """A window of 128 in rows of 1,024 tokens."""
    scenarios = scenario_set(problem({"window_tokens": 128}, {"constant": 1024}))  # type: ignore[arg-type]
    share = scenarios.shares[128, None]
    assert share.per_work == 0.0
    assert share.fixed == pytest.approx(2 * 1024 * 128 - 128**2 + RAMP_TOKENS * 1024)
    assert scenarios.real_squares[128, None] < scenarios.real_squares[WHOLE]


def test_drawn_lengths_keep_the_mean() -> None:
    """The share's work equals the documents' own, on average over all rows."""
    lengths = {"counts": [[100, 50], [400, 30], [1024, 20]]}
    scenarios = scenario_set(problem({"chunk_tokens": 256}, lengths))  # type: ignore[arg-type]
    share = scenarios.shares[None, 256]
    mean = share.fixed + share.per_work * float(scenarios.work.mean())
    assert 0.0 < mean < float(scenarios.work.mean())
    tokens = float(scenarios.real_tokens.mean())
    assert mean * scenarios.rows == pytest.approx(scenarios.real_squares[None, 256] + RAMP_TOKENS * tokens)
