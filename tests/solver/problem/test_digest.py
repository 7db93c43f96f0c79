"""Normal form and digests: equal questions have equal digests, whatever their spelling; every change of meaning has its own."""

from __future__ import annotations

import copy
import random
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import catalog
from solver.problem import normal_form, normalise, parse_problem, problem_digest, request_digest
from tests.solver.problem.documents import changed, mixed, small

DEVICES = ("A100-SXM4-40", "A100-SXM4-80", "H100-SXM5-80")
PRESETS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "llama-3.1-70b")


@st.composite
def lengths(draw: st.DrawFn) -> dict[str, Any]:
    """One of the length forms."""
    kind = draw(st.sampled_from(["constant", "counts", "histogram", "lognormal"]))
    if kind == "constant":
        return {"constant": draw(st.integers(1, 8192))}
    if kind == "counts":
        rows = st.tuples(st.integers(1, 8192), st.integers(1, 1000)).map(list)
        return {"counts": draw(st.lists(rows, min_size=1, max_size=6))}
    if kind == "histogram":
        edges = sorted(draw(st.sets(st.integers(0, 8192), min_size=2, max_size=6)))
        counts = [draw(st.integers(1, 50)) for _ in edges[1:]]
        return {"histogram": {"edges": edges, "counts": counts}}
    return {"lognormal": {"median": draw(st.integers(1, 4000)), "sigma": draw(st.sampled_from([0.5, 1.0, 1.25])), "max": 8192}}


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """A valid problem document."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4, unique=True))
    groups = [
        {
            "name": name,
            "device": draw(st.sampled_from(DEVICES)),
            "nodes": draw(st.integers(1, 16)),
            "devices_per_node": draw(st.sampled_from([4, 8])),
            "price_per_device_hour": draw(st.sampled_from([1, 2.5])),
        }
        for name in names
    ]
    document: dict[str, Any] = {
        "model": {"preset": draw(st.sampled_from(PRESETS))},
        "workload": {
            "sequence_lengths": draw(lengths()),
            "max_sequence_length": 8192,
            "batching": draw(st.sampled_from(["packed", "padded", ["packed"]])),
            "global_batch": {"tokens": draw(st.integers(1, 10**6)), "tolerance": draw(st.sampled_from([0, 0.25]))},
            "optimizer": draw(st.sampled_from(["adamw", "sgd"])),
        },
        "cluster": {"groups": groups},
        "objective": draw(st.sampled_from(["step_time", "cost"])),
        "constraints": {"allowed": {"tp": draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4))}},
        "search": {"alternatives": draw(st.integers(0, 9)), "target_gap": draw(st.sampled_from([0, 0.03]))},
    }
    if len(names) > 1 and draw(st.booleans()):
        document["cluster"]["links"] = [{"between": names[:2], "bytes_per_s_per_node": 1e10}]
    return document


def respelled(value: Any, rng: random.Random) -> Any:
    """The same JSON value: keys in another order, integers as floats or back."""
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {key: respelled(item, rng) for key, item in items}
    if isinstance(value, list):
        return [respelled(item, rng) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return float(value)
    if isinstance(value, float) and value.is_integer() and rng.random() < 0.5:
        return int(value)
    return value


def reordered(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same question: groups, counts, links, allowed values in another order; a count split in two."""
    result = copy.deepcopy(document)
    rng.shuffle(result["cluster"]["groups"])
    for link in result["cluster"].get("links", []):
        link["between"] = link["between"][::-1]
    counts = result["workload"]["sequence_lengths"].get("counts")
    if counts:
        rng.shuffle(counts)
        length, count = counts[0]
        if count > 1:
            counts[0:1] = [[length, 1], [length, count - 1]]
    for values in result["constraints"]["allowed"].values():
        rng.shuffle(values)
    if isinstance(result["workload"]["batching"], list):
        result["workload"]["batching"].reverse()
    return result


def digests(document: dict[str, Any]) -> tuple[str, str]:
    """Both digests."""
    problem = parse_problem(document)
    return problem_digest(problem), request_digest(problem)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 2**32))
def test_spelling_makes_no_difference(document: dict[str, Any], seed: int) -> None:
    """Key order, order of groups and counts, 1 against 1.0, shorthands and content in place of names."""
    rng = random.Random(seed)
    other = respelled(reordered(document, rng), rng)
    other["objective"] = {"kind": other["objective"]}
    other["workload"]["optimizer"] = {"name": other["workload"]["optimizer"]}
    other["model"] = {"transformer": catalog.find_model(document["model"]["preset"]).transformer}
    for group in other["cluster"]["groups"]:
        group["device"] = catalog.find_device(group["device"]).content
    assert digests(other) == digests(document)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_normal_form_is_a_document_and_a_fixed_point(document: dict[str, Any]) -> None:
    """The normal form parses, has the same digests, and is its own normal form; normalise is idempotent."""
    problem = parse_problem(document)
    once = normalise(problem)
    assert normalise(once) == once
    form = normal_form(problem)
    again = parse_problem(form)
    assert normal_form(again) == form
    assert normal_form(once) == form
    assert (problem_digest(again), request_digest(again)) == digests(document)


@settings(max_examples=40, deadline=None)
@given(problems(), problems())
def test_unlike_problems_have_unlike_digests(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Digests agree exactly when the normal forms do."""
    forms = [normal_form(parse_problem(document)) for document in (first, second)]
    assert (digests(first)[1] == digests(second)[1]) == (forms[0] == forms[1])


def test_digests_are_bare_lower_case_hex() -> None:
    """Sixty-four digits."""
    for digest in digests(mixed()):
        assert len(digest) == 64
        assert set(digest) <= set("0123456789abcdef")


DEFAULTS: list[tuple[str, Any]] = [
    ("workload.truncate", False),
    ("workload.truncate", True),
    ("workload.max_sequence_length", 4096),
    ("workload.batching", ["packed"]),
    ("workload.global_batch.tolerance", 0),
    ("workload.scenarios", {"batches": 8, "seed": 0}),
    ("workload.precision", "bf16"),
    ("workload.optimizer", {"name": "adamw", "master": "fp32", "moments": "fp32", "main_gradient": "fp32"}),
    ("workload.task", "pretrain"),
    ("workload.software", "megatron-core"),
    ("workload.software", {"name": "mcore", "version": "latest-known", "assumptions": {"context_bytes": 1.3e9}}),
    ("workload.software", {"assumptions": {"context_bytes": None}}),
    ("workload.kernels", {"attention": "flash", "dropout": 0}),
    ("workload.expert_imbalance", 1.1),
    ("workload.total_tokens", None),
    ("cluster.groups.0.devices_per_node", 8),
    ("cluster.groups.0.device", "a100-80gb"),
    ("cluster.groups.0.host", {"memory_bytes": 2e12}),
    ("cluster.groups.0.precision", "bf16"),
    ("cluster.groups.0.fabric", [{"name": "nvlink", "bytes_per_s_per_device": 3e11, "latency_s": 3e-6}]),
    ("cluster.links", []),
    ("cluster.memory_reserve_fraction", 0.06),
    ("cluster.currency", "USD"),
    ("cluster.profile", None),
    ("objective", {"kind": "step_time"}),
    ("framework", "any"),
    ("constraints", {"fixed": {}, "allowed": {}, "max_devices": None, "memory": "safe"}),
    ("search", {"target_gap": 0, "alternatives": 5, "reproducible": True, "work_limit": None, "time_limit_s": 60}),
    ("search", {"proof": False, "force": None}),
    ("running", None),
]


@pytest.mark.parametrize(("path", "value"), DEFAULTS)
def test_an_explicit_default_makes_no_difference(path: str, value: Any) -> None:
    """Saying what would have been assumed."""
    assert digests(small(**{path: value})) == digests(small())


CHANGES: list[tuple[str, Any]] = [
    ("model", {"preset": "llama-3.1-70b"}),
    ("workload.sequence_lengths", {"constant": 4095}),
    ("workload.sequence_lengths", {"counts": [[4096, 1]]}),
    ("workload.sequence_lengths", {"histogram": {"edges": [4095, 4096], "counts": [1]}}),
    ("workload.max_sequence_length", 8192),
    ("workload.batching", "padded"),
    ("workload.global_batch.tolerance", 0.1),
    ("workload.global_batch", {"tokens": 64 * 4096}),
    ("workload.precision", "fp16"),
    ("workload.optimizer", "sgd"),
    ("workload.optimizer", {"moments": "bf16"}),
    ("workload.task", "finetune"),
    ("workload.software", {"assumptions": {"context_bytes": 1.2e9}}),
    ("workload.kernels", {"attention": "unfused"}),
    ("workload.expert_imbalance", 1.2),
    ("workload.total_tokens", 10**12),
    ("cluster.groups.0.name", "b100"),
    ("cluster.groups.0.device", "A100-SXM4-40"),
    ("cluster.groups.0.nodes", 2),
    ("cluster.groups.0.devices_per_node", 4),
    ("cluster.groups.0.host", {"memory_bytes": 1e12}),
    ("cluster.groups.0.precision", "fp16"),
    ("cluster.groups.0.price_per_device_hour", 2),
    ("cluster.groups.0.fabric", [{"name": "nvlink", "bytes_per_s_per_device": 2e11, "latency_s": 3e-6}]),
    ("cluster.memory_reserve_fraction", 0.05),
    ("cluster.currency", "EUR"),
    ("framework", "megatron-core"),
    ("constraints", {"fixed": {"tp": 8}}),
    ("constraints", {"allowed": {"tp": [8]}}),
    ("constraints", {"memory": "fits"}),
    ("search", {"alternatives": 4}),
    ("search", {"proof": True}),
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_every_change_of_meaning_makes_another_digest(path: str, value: Any) -> None:
    """Both digests change."""
    for before, after in zip(digests(small()), digests(small(**{path: value})), strict=True):
        assert before != after


def test_changes_differ_from_each_other() -> None:
    """No two of the changes above collide."""
    found = [digests(small(**{path: value}))[0] for path, value in CHANGES]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("target_gap", 0.1),
        ("reproducible", False),
        ("work_limit", 7),
        ("time_limit_s", 5),
        ("time_limit_s", None),
        ("force", "bounds"),
    ],
)
def test_limits_of_the_search_are_in_the_request_digest_only(key: str, value: Any) -> None:
    """The proven answer is the same however long was searched."""
    plain, limited = digests(small()), digests(small(search={key: value}))
    assert plain[0] == limited[0]
    assert plain[1] != limited[1]


def test_scenarios_matter_only_when_lengths_vary() -> None:
    """A constant length needs no draw; elsewhere the seed changes the question."""
    assert digests(small(**{"workload.scenarios.seed": 1})) == digests(small())
    assert digests(mixed(**{"workload.scenarios.seed": 1})) != digests(mixed())
    assert normalise(parse_problem(small(**{"workload.scenarios.seed": 1}))).workload.scenarios is None


def test_default_link_equals_the_same_link_written_out() -> None:
    """Saying what the missing link would have been."""
    silent = mixed()
    del silent["cluster"]["links"]
    link = {"between": ["a100", "h100"], "bytes_per_s_per_node": 2e11, "latency_s": 1e-5, "collectives": True}
    assert digests(changed(silent, {"cluster.links": [link]})) == digests(silent)


def test_equal_blocks_in_a_row_are_one() -> None:
    """Eighty layers, or forty and forty."""
    block = {"repeat": 4, "attention": {"kind": "softmax", "heads": 8}, "mlp": {"kind": "dense", "hidden_size": 64}}
    model = {"hidden_size": 64, "vocab_size": 128, "blocks": [block]}
    halves = {**model, "blocks": [{**block, "repeat": 1}, {**block, "repeat": 3}]}
    assert digests(small(model={"transformer": halves})) == digests(small(model={"transformer": model}))


def test_versions_are_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another cost model is another question."""
    before = digests(small())
    monkeypatch.setattr(sys.modules["solver.versions"], "COST_MODEL", "2")
    assert before[0] != digests(small())[0]
