"""Megatron-core exports: golden files, scripts that start and refuse, layout strings read back, and what has no flag."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.dimensions.words import expand_uniform
from solver.errors import InvalidProblem, NotExpressible
from solver.exporters import export, exporter_names, expressible, expressible_in
from solver.exporters.megatron_pipeline import layout_string
from solver.frameworks import get_rule_set
from solver.layout import Layout, UniformLayout
from solver.plan import parse_layout
from solver.problem import Problem
from tests.solver.exporters.cases import CASES, a100, ask, deepseek, h100, with_recomputed_layers
from tests.solver.exporters.plans import plan_of
from tests.solver.frameworks.problems import dense, problem, qwen3_30b_a3b, softmax, transformer, uniform_model

GOLDEN = Path(__file__).parents[2] / "golden" / "megatron-core"
NAME = "megatron-core"

# Flags of Megatron-LM v0.20 (its training arguments) that these exports may use.
KNOWN_FLAGS = set((GOLDEN / "flags.txt").read_text().split())


def script_of(asked: Problem, layout: Layout) -> str:
    return export(asked, plan_of(asked, layout), NAME).files[0].content


def flags_of(asked: Problem, layout: Layout) -> dict[str, str]:
    """Flags of the script, run dry with mock data; a flag without value is an empty string."""
    found = subprocess.run(
        ["bash", "-c", script_of(asked, layout), "launch.sh", "--mock-data", "--dry-run"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "MEGATRON_PATH": "/m", "NODE_RANK": "0", "MASTER_ADDR": "host"},
    )
    words = found.stdout.replace("\\", "").split()
    words = words[words.index("/m/pretrain_gpt.py") + 1 :]
    flags: dict[str, str] = {}
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            assert name not in flags, f"--{name} appears twice"
            flags[name] = ""
        else:
            flags[name] = f"{flags[name]} {word}".strip()
    return flags


def codes(asked: Problem, layout: Layout) -> dict[str, str]:
    return {error.pointer: error.message for error in expressible(asked, layout, NAME)}


@pytest.mark.parametrize("name", CASES)
def test_golden_files(name: str) -> None:
    """Set PLANNER_UPDATE_GOLDEN=1 to write them anew."""
    asked, layout = CASES[name]()
    assert expressible_in(asked, layout) == (NAME,)
    made = export(asked, plan_of(asked, layout), NAME)
    assert (made.framework, made.version) == (NAME, "0.20")
    for file in made.files:
        path = GOLDEN / name / file.path
        if os.environ.get("PLANNER_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.content)
        assert file.content == path.read_text(), path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize("name", CASES)
def test_scripts_are_bash_and_use_known_flags(name: str) -> None:
    asked, layout = CASES[name]()
    subprocess.run(["bash", "-n"], input=script_of(asked, layout), text=True, check=True)
    flags = flags_of(asked, layout)
    assert set(flags) <= KNOWN_FLAGS
    part = layout.stages[0].parts[0]
    assert flags["expert-tensor-parallel-size"] == "1"
    assert flags["tensor-model-parallel-size"] == str(part.size("tp"))
    assert flags["global-batch-size"] == str(layout.global_batch_sequences())
    assert flags["num-layers"] == str(asked.transformer.layers)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_script_refuses_to_start_without_data(tmp_path: Path) -> None:
    asked, layout = CASES["dense-one-node"]()
    path = tmp_path / "launch.sh"
    path.write_text(script_of(asked, layout))

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        base = {"PATH": os.environ["PATH"]}
        return subprocess.run(
            ["bash", str(path), *arguments], capture_output=True, text=True, check=False, env=base | environment
        )

    assert (run().returncode, "set DATA_PATH" in run().stderr) == (64, True)
    assert "set TOKENIZER_MODEL" in run(DATA_PATH="d").stderr
    assert "set MEGATRON_PATH" in run("--mock-data").stderr
    assert run("--nonsense").returncode == 64
    assert run("--help").returncode == 0
    assert "--srun needs a Slurm allocation" in run("--mock-data", "--srun", MEGATRON_PATH="/m").stderr
    ready = run(
        "--dry-run", "--", "--seed", "7", DATA_PATH="a b", TOKENIZER_MODEL="t", MEGATRON_PATH="/m", EXTRA_ARGS="--rotary-base 5"
    )
    assert ready.returncode == 0
    assert ready.stdout.rstrip().endswith("--rotary-base 5 --seed 7")
    assert "a\\ b" in ready.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_srun_starts_one_launcher_a_node(tmp_path: Path) -> None:
    asked, layout = CASES["unlike-groups"]()
    (tmp_path / "launch.sh").write_text(script_of(asked, layout))
    (tmp_path / "hosts").write_text("h0\nh1\na0\na1\n")
    fake = tmp_path / "srun"
    fake.write_text('#!/usr/bin/env bash\necho "$@"\necho "$MASTER_ADDR $SLURM_HOSTFILE"\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "1", "MEGATRON_PATH": "/m"}
    command = ["bash", "launch.sh", "--mock-data", "--srun"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert "set HOSTFILE" in refused.stderr
    started = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment | {"HOSTFILE": "hosts"}
    )
    assert "--nodes=4 --ntasks=4 --ntasks-per-node=1 --distribution=arbitrary bash launch.sh --mock-data --srun" in started.stdout
    assert "h0 hosts" in started.stdout


def read_layout_string(text: str) -> list[str]:
    """The grammar of pipeline_parallel_layer_layout.py: first (...)*n, then x*n, then split at the bars."""
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda match: match.group(1) * int(match.group(2)), text)
    return text.split("|")


def test_deepseek_layout_string_counts_every_layer() -> None:
    """deepseek-ai/DeepSeek-V3#19: 61 layers and one prediction layer."""
    asked, layout = deepseek()
    text = layout_string(asked, layout)
    assert text == "Et*3|(tt|)*29|mL"
    stages = read_layout_string(text)
    assert len(stages) == 32
    joined = "".join(stages)
    assert (joined.count("t"), joined.count("m"), joined[0], joined[-1]) == (61, 1, "E", "L")
    assert flags_of(asked, layout)["moe-layer-freq"] == "([0]*3+[1]*58)"


@pytest.mark.parametrize("counts", [[7, 8, 8, 7], [1, 1, 1, 27], [10, 10, 10, 0], [8, 8, 8, 6], [0, 15, 15, 0]])
def test_layout_strings_read_back(counts: list[int]) -> None:
    asked = problem(uniform_model(30, mtp_layers=2))
    layout = expand_uniform(asked, UniformLayout(pp=4, dp=2), counts)
    stages = read_layout_string(layout_string(asked, layout))
    assert [stage.count("t") for stage in stages] == counts
    assert stages[0][0] == "E"
    assert stages[-1].endswith("mmL")


def test_even_stages_need_no_layout_string() -> None:
    asked = problem(uniform_model(32))
    flags = flags_of(asked, expand_uniform(asked, UniformLayout(pp=4, vpp=2)))
    assert flags["num-virtual-stages-per-pipeline-rank"] == "2"
    assert flags["microbatch-group-size-per-virtual-pipeline-stage"] == "4"
    assert "pipeline-model-parallel-layout" not in flags
    flags = flags_of(asked, expand_uniform(asked, UniformLayout(pp=3, dp=2)))
    assert flags["pipeline-model-parallel-layout"] == "Et*11|t*11|t*10L"


def test_recompute_forms() -> None:
    asked = problem(uniform_model(32))
    plain = expand_uniform(asked, UniformLayout(pp=4))
    assert not any(name.startswith("recompute") for name in flags_of(asked, plain))
    block = flags_of(asked, with_recomputed_layers(plain, 3))
    assert (block["recompute-granularity"], block["recompute-method"], block["recompute-num-layers"]) == ("full", "block", "3")
    full = flags_of(asked, expand_uniform(asked, UniformLayout(pp=4, recompute="full")))
    assert (full["recompute-method"], full["recompute-num-layers"]) == ("uniform", "1")


def test_optimizer_states_and_offload() -> None:
    asked = problem(uniform_model(32), workload={"optimizer": {"name": "adamw", "moments": "bf16", "main_gradient": "bf16"}})
    flags = flags_of(asked, expand_uniform(asked, UniformLayout(zero=1, offload_optimizer=0.25)))
    assert flags["optimizer-offload-fraction"] == "0.25"
    assert (flags["exp-avg-dtype"], flags["main-grads-dtype"], flags["main-params-dtype"]) == ("bf16", "bf16", "fp32")
    assert "grad-reduce-in-bf16" in flags
    assert "accumulate-allreduce-grads-in-fp32" not in flags
    assert "MC32" in " ".join(codes(asked, expand_uniform(asked, UniformLayout(zero=0))).values())


def test_model_families() -> None:
    gpt = ask("gpt2", 64, [a100(1)], length=1024)
    flags = flags_of(gpt, expand_uniform(gpt, UniformLayout(zero=0)))
    assert flags["position-embedding-type"] == "learned_absolute"
    assert flags["normalization"] == "LayerNorm"
    assert not {"swiglu", "disable-bias-linear", "untie-embeddings-and-output-weights", "use-distributed-optimizer"} & set(flags)
    qwen = ask("qwen3-8b", 64, [h100(1)])
    flags = flags_of(qwen, expand_uniform(qwen, UniformLayout(tp=2)))
    assert {"qk-layernorm", "swiglu", "group-query-attention"} <= set(flags)


def blocks_of(*mlps: dict[str, Any], **attention: Any) -> dict[str, Any]:
    return transformer(*({"repeat": 4, "attention": softmax(32, 8) | attention, "mlp": mlp} for mlp in mlps))


@pytest.mark.parametrize(
    ("model", "pointer"),
    [
        (blocks_of(dense(8192), dense(4096)), "/model/transformer/blocks/1/mlp"),
        (blocks_of(dense(8192), causal=False), "/model/transformer/blocks/0/attention/causal"),
        (blocks_of(dense(8192) | {"bias": True}), "/model/transformer/blocks/0/mlp/bias"),
        (transformer({"repeat": 8, "attention": softmax(32, 8)}), "/model/transformer/blocks/0"),
    ],
)
def test_models_without_flags(model: dict[str, Any], pointer: str) -> None:
    asked = problem(model)
    layout = expand_uniform(asked, UniformLayout())
    assert pointer in codes(asked, layout)
    with pytest.raises(NotExpressible, match=r"."):
        export(asked, plan_of(asked, layout), NAME)


def stages_of(document: dict[str, Any]) -> Any:
    return document["modules"][0]["stages"]


def test_unequal_shares_are_refused_by_name() -> None:
    asked = ask("llama-3.1-70b", 128, [h100(2), a100(2)])
    document = expand_uniform(asked, UniformLayout(tp=8, pp=1, groups=("h100", "a100"))).model_dump(mode="json")
    fast, slow = stages_of(document)[0]["parts"]
    fast |= {"micro_batches": 48, "share": 0.75}
    slow |= {"micro_batches": 16, "share": 0.25}
    found = codes(asked, parse_layout(document))
    assert list(found) == ["/layout/modules/0/stages/0/parts/0/share"]
    assert "unequal numbers of micro-batches: [16, 48]" in next(iter(found.values()))


def test_fully_sharded_states_are_refused() -> None:
    asked = problem(uniform_model(32))
    assert "/layout/modules/0/stages/0/strategy/shard" in codes(asked, expand_uniform(asked, UniformLayout(zero=3)))


def test_unequal_recompute_is_refused() -> None:
    asked = problem(uniform_model(32))
    document = expand_uniform(asked, UniformLayout(pp=2, dp=4)).model_dump(mode="json")
    stages_of(document)[0]["overrides"] = [{"layers": [0, 3], "recompute": {"kind": "full"}}]
    assert list(codes(asked, parse_layout(document))) == ["/layout/modules/0/stages/0/overrides"]


def test_rank_order_and_nodes() -> None:
    asked = problem(uniform_model(32), nodes=2)
    document = expand_uniform(asked, UniformLayout(pp=2, dp=8)).model_dump(mode="json")
    first, second = (stage["parts"][0] for stage in stages_of(document))
    first["ranks"], second["ranks"] = second["ranks"], first["ranks"]
    assert "/layout/modules/0/stages/0/parts/0/ranks" in codes(asked, parse_layout(document))

    document = expand_uniform(asked, UniformLayout(pp=2, dp=4)).model_dump(mode="json")
    first, second = (stage["parts"][0] for stage in stages_of(document))
    first["devices"] = [{"group": "g", "first": 0, "count": 2}, {"group": "g", "first": 8, "count": 2}]
    second["devices"] = [{"group": "g", "first": 2, "count": 2}, {"group": "g", "first": 10, "count": 2}]
    document["idle_devices"] = []
    assert "returns to node 0" in codes(asked, parse_layout(document))["/layout/modules/0/stages/0/parts/0/ranks"]

    document = expand_uniform(asked, UniformLayout(tp=2, dp=4)).model_dump(mode="json")
    stages_of(document)[0]["parts"][0]["mesh"] = [
        {"axis": "dp", "size": 4, "stride": 1},
        {"axis": "tp", "size": 2, "stride": 4},
    ]
    assert "/layout/modules/0/stages/0/parts/0/mesh" in codes(asked, parse_layout(document))


def test_part_of_a_node_sees_its_devices_only() -> None:
    asked = problem(uniform_model(32), nodes=2)
    document = expand_uniform(asked, UniformLayout(dp=4)).model_dump(mode="json")
    stages_of(document)[0]["parts"][0]["devices"] = [{"group": "g", "first": 4, "count": 4}]
    document["idle_devices"] = [{"group": "g", "first": 0, "count": 4}, {"group": "g", "first": 8, "count": 8}]
    text = script_of(asked, parse_layout(document))
    assert "DEVICES=(4,5,6,7)" in text
    assert "PROCESSES=(4)" in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_nodes_may_run_unequal_numbers_of_ranks() -> None:
    asked = problem(uniform_model(32), nodes=2, rows=48)
    text = script_of(asked, expand_uniform(asked, UniformLayout(pp=2, dp=6)))
    assert "PROCESSES=(8 4)" in text
    for node, processes in (("0", "8"), ("1", "4")):
        environment = {"PATH": os.environ["PATH"], "MEGATRON_PATH": "/m", "NODE_RANK": node, "MASTER_ADDR": "host"}
        command = ["bash", "-c", text, "launch.sh", "--mock-data", "--dry-run"]
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert f"--nproc-per-node {processes} --node-rank {node} " in found.stdout


def test_metadata_carries_derived_numbers() -> None:
    asked, layout = CASES["dense-one-node"]()
    plan = plan_of(asked, layout)
    made = export(asked, plan, NAME)
    found = json.loads(made.files[1].content)
    assert found["plan_id"] == plan.id
    assert found["derived"]["padded_vocab_size"] == 128256
    assert found["derived"]["data_parallel_size"] == 4
    assert found["derived"]["micro_batches_per_replica"] == 32
    assert plan.id in made.files[0].content
    assert made.command == "bash launch.sh"


def test_exporters_are_found_by_name() -> None:
    assert NAME in exporter_names()
    asked, layout = CASES["dense-one-node"]()
    with pytest.raises(InvalidProblem, match="there is no export for 'any'"):
        export(asked, plan_of(asked, layout), "any")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_whatever_the_rules_allow_is_exported(number: int) -> None:
    """No plan leaves the search that the exporter refuses."""
    asked = [
        problem(uniform_model(24), nodes=4),
        problem(qwen3_30b_a3b(), nodes=4),
        problem(uniform_model(30, mtp_layers=1), nodes=3),
    ][number]
    draw = np.random.Generator(np.random.PCG64(number))
    names = ("tp", "cp", "pp", "ep", "vpp", "mbs")
    columns = {name: draw.choice([1, 2, 3, 4, 8], 20_000) for name in names}
    columns |= {
        "etp": draw.choice([1, 2], 20_000),
        "dp": draw.choice([1, 2, 4, 6, 8, 16], 20_000),
        "zero": draw.integers(0, 2, 20_000),
    }
    columns["sequence_parallel"] = (columns["tp"] > 1).astype(np.int64)
    columns["micro_batches"] = 64 // np.minimum(64, columns["dp"] * columns["mbs"])
    legal = np.flatnonzero(get_rule_set(NAME).legal(asked, columns))
    assert legal.size > 50
    for at in legal[:150]:
        words = {name: int(values[at]) for name, values in columns.items() if name not in ("micro_batches", "sequence_parallel")}
        layout = expand_uniform(asked, UniformLayout(**words))
        assert expressible(asked, layout, NAME) == (), words
        made = export(asked, plan_of(asked, layout), NAME)
        strings = [line.split("'")[1] for line in made.files[0].content.splitlines() if "parallel-layout" in line]
        for text in strings:
            assert len(read_layout_string(text)) == layout.pp * layout.vpp
