"""What must hold of predicted bytes whatever the constants: which way they move with every choice of a layout."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.balance.ledger import assemble
from solver.catalog import profiles
from solver.cost.memory_kernels import ACTIVATIONS, DEVICE, GRADIENTS, HOST, OPTIMIZER, WEIGHTS
from solver.cost.table import cost_model
from solver.dimensions.words import expand_uniform
from solver.layout import UniformLayout
from solver.problem import Problem
from tests.solver.sample_layouts import group, moe_model, sample_model, sample_problem

MODELS = {
    "dense": sample_model(),
    "tied": sample_model(tied_embeddings=True, norm="layer"),
    "experts": moe_model(mtp_layers=1),
}
LARGER = 1.0 + 1e-9
SMALLER = 1.0 - 1e-9


def problem_of(model: str, profile: str, length: int = 2048) -> Problem:
    workload = {"sequence_lengths": {"constant": length}, "global_batch": {"sequences": 64}, "software": profile}
    return sample_problem(MODELS[model], workload=workload, groups=[group(nodes=16)])


def stages(problem: Problem, **words: Any) -> Any:
    """float64[stages, columns]."""
    layout = expand_uniform(problem, UniformLayout(**words))
    return assemble(cost_model(problem), layout).memory[0]


def memory(problem: Problem, **words: Any) -> Any:
    """Columns of the worst stage by device bytes: float64[columns]."""
    table = stages(problem, **words)
    return table[int(table[:, DEVICE].argmax())]


names = st.sampled_from(sorted(MODELS))
software = st.sampled_from(sorted(profiles()))


@given(model=names, profile=software, tp=st.sampled_from([1, 2, 4]), dp=st.sampled_from([2, 4, 8]), pp=st.sampled_from([1, 2, 4]))
@settings(max_examples=60, deadline=None)
def test_every_zero_stage_keeps_less(model: str, profile: str, tp: int, dp: int, pp: int) -> None:
    problem = problem_of(model, profile)
    states = []
    for zero in range(4):
        row = memory(problem, tp=tp, dp=dp, pp=pp, zero=zero)
        states.append(row[WEIGHTS] + row[GRADIENTS] + row[OPTIMIZER])
    assert all(after <= before * LARGER for before, after in pairwise(states))


@given(
    model=names,
    profile=software,
    zero=st.sampled_from([1, 2, 3]),
    dp=st.sampled_from([2, 4, 8]),
    pp=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
@settings(max_examples=60, deadline=None)
def test_more_replicas_never_need_more(model: str, profile: str, zero: int, dp: int, pp: int, recompute: str) -> None:
    problem = problem_of(model, profile)
    less, more = (memory(problem, dp=size, pp=pp, zero=zero, recompute=recompute)[DEVICE] for size in (dp, 2 * dp))
    assert more <= less * LARGER


@given(model=names, profile=software, pp=st.sampled_from([1, 2, 4]), zero=st.sampled_from([0, 1, 3]))
@settings(max_examples=60, deadline=None)
def test_more_tensor_ranks_never_need_more(model: str, profile: str, pp: int, zero: int) -> None:
    """From two on (one has no gathered inputs) and up to the key/value heads, data-parallel ranks unchanged."""
    problem = problem_of(model, profile)
    two, four = (memory(problem, tp=tp, dp=2, pp=pp, zero=zero)[DEVICE] for tp in (2, 4))
    padding = 2 * 256 * 4096 * 20  # rows of the vocabulary that the larger multiple adds, all states of two tables
    assert four <= two * LARGER + padding


@given(model=names, profile=software, cp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2]))
@settings(max_examples=40, deadline=None)
def test_context_ranks_divide_activations(model: str, profile: str, cp: int, pp: int) -> None:
    problem = problem_of(model, profile, 8192)
    less, more = (memory(problem, cp=size, dp=2, pp=pp)[ACTIVATIONS] for size in (cp, 2 * cp))
    assert more == pytest.approx(less / 2)


@given(model=names, profile=software, pp=st.sampled_from([1, 2, 4]), mbs=st.sampled_from([1, 2, 4]))
@settings(max_examples=40, deadline=None)
def test_larger_micro_batches_need_more(model: str, profile: str, pp: int, mbs: int) -> None:
    """With enough micro-batches to fill the pipeline at either size."""
    problem = problem_of(model, profile)
    one, two = (stages(problem, dp=2, pp=pp, mbs=size) for size in (mbs, 2 * mbs))
    assert two[:, ACTIVATIONS] == pytest.approx(2 * one[:, ACTIVATIONS])
    assert (two[:, DEVICE] > one[:, DEVICE]).all()


@given(model=names, profile=software, pp=st.sampled_from([1, 2, 4]), vpp=st.sampled_from([1, 2]), mbs=st.sampled_from([1, 2]))
@settings(max_examples=60, deadline=None)
def test_recompute_keeps_less(model: str, profile: str, pp: int, vpp: int, mbs: int) -> None:
    problem = problem_of(model, profile)
    vpp = vpp if pp > 1 else 1
    none, selective, full = (
        memory(problem, dp=2, pp=pp, vpp=vpp, mbs=mbs, recompute=kind)[ACTIVATIONS] for kind in ("none", "selective", "full")
    )
    assert full < selective <= none


@given(model=names, profile=software, zero=st.sampled_from([1, 2, 3]), dp=st.sampled_from([2, 8]))
@settings(max_examples=40, deadline=None)
def test_offload_moves_states_to_the_host(model: str, profile: str, zero: int, dp: int) -> None:
    problem = problem_of(model, profile)
    rows = [memory(problem, dp=dp, zero=zero, offload_optimizer=share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    device, host = [row[DEVICE] for row in rows], [row[HOST] for row in rows]
    assert device == sorted(device, reverse=True)
    assert device[-1] < device[0] * SMALLER
    assert host == sorted(host)
    assert host[0] == 0.0
    assert rows[-1][OPTIMIZER] == 0.0


@given(profile=software, ep=st.sampled_from([1, 2, 4]), zero=st.sampled_from([0, 1, 2, 3]))
@settings(max_examples=40, deadline=None)
def test_more_expert_ranks_keep_fewer_experts(profile: str, ep: int, zero: int) -> None:
    problem = problem_of("experts", profile)
    less, more = (memory(problem, dp=8, ep=size, zero=zero) for size in (ep, 2 * ep))
    assert more[WEIGHTS] <= less[WEIGHTS] * LARGER
    assert more[ACTIVATIONS] == pytest.approx(less[ACTIVATIONS])


@pytest.mark.parametrize("profile", sorted(profiles()))
def test_longer_documents_need_more(profile: str) -> None:
    rows = [memory(problem_of("dense", profile, length), tp=2, dp=2, pp=2)[DEVICE] for length in (1024, 2048, 4096, 8192)]
    assert rows == sorted(rows)
    assert rows[-1] > rows[0]
