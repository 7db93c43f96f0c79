"""Parameters of every shared config against what its publisher states."""

from __future__ import annotations

import json
import math
import re

import pytest

from solver.errors import InvalidProblem
from solver.importers import import_hf_config
from solver.problem import count_model_parameters
from solver.problem.parameters import ParameterCount
from tests.solver.importers.reading import CONFIGS

pytestmark = pytest.mark.skipif(not CONFIGS.is_dir(), reason="no shared configs (PLANNER_SHARED_DIR)")

HUB = "sum of the tensors that the hub shows"
CLASS = "sum of the parameters of its transformers 5.24.0 class"

#: Config -> exact total without prediction layers, and its source.
EXACT = {
    "baichuan-7b": (7_000_559_616, "7,000,559,616: sum of the tensors of Baichuan-7B"),
    "codellama-34b": (33_743_970_304, f"{HUB}, with 32,000 rows"),
    "deepseek-moe-v1": (16_375_728_128, HUB),
    "deepseek-v3": (671_026_419_200, "671B main model in the DeepSeek-V3 README, tensors with the routing corrections"),
    "gemma-2b": (2_506_172_416, CLASS),
    "gemma2-2b": (2_614_636_800, "590,118,912 + 2,024,517,888, Gemma 2 report, table 2 (256,128 rows)"),
    "gemma2-9b": (9_242_164_736, "917,962,752 + 8,324,201,984, Gemma 2 report, table 2 (256,128 rows)"),
    "gemma2-27b": (27_227_718_144, "1,180,237,824 + 26,047,480,320, Gemma 2 report, table 2 (256,128 rows)"),
    "gemma3-1b": (999_885_952, HUB),
    "gpt-bigcode": (1_124_886_528, CLASS),
    "gpt-neox-redpajama-3b": (2_775_864_320, CLASS),
    "gpt-oss-20b": (20_914_757_184, "parameters shown for the weights; 20.9B in the gpt-oss model card"),
    "gpt-oss-120b": (116_829_156_672, "parameters shown for the weights; 116.8B in the gpt-oss model card"),
    "gpt2": (124_439_808, CLASS),
    "gpt2-medium": (354_823_168, CLASS),
    "internlm2.5-7b": (7_737_708_544, HUB),
    "llama2-7b": (6_738_417_664, f"{HUB}, two tables of rotary frequencies included"),
    "llama2-13b": (13_015_866_880, f"{HUB}, tables of rotary frequencies included"),
    "llama2-70b": (68_976_653_312, f"{HUB}, tables of rotary frequencies included"),
    "llama3.1-8b": (8_030_261_248, HUB),
    "llama3.1-70b": (70_553_706_496, HUB),
    "llama3.1-405b": (405_853_388_800, HUB),
    "llama3.2-1b": (1_235_814_400, CLASS),
    "llama3.2-3b": (3_212_749_824, CLASS),
    "llava-1.5-7b": (7_063_427_072, HUB),
    "mistral-7b-instruct-v0.3": (7_248_023_552, CLASS),
    "mistral-7b-v0.1": (7_241_732_096, CLASS),
    "mixtral-8x7b": (46_702_792_704, HUB),
    "mixtral-8x22b": (140_620_634_112, HUB),
    "nemotron-h-56b": (56_324_350_464, CLASS),
    "olmo2-7b": (7_298_617_344, HUB),
    "olmo2-32b": (32_234_279_936, HUB),
    "phi-2-msft": (2_779_683_840, HUB),
    "phi-4": (14_659_507_200, HUB),
    "qwen1.5-moe-a2.7b": (14_315_784_192, HUB),
    "qwen2-7b": (7_615_616_512, HUB),
    "qwen2.5-3b": (3_085_938_688, HUB),
    "qwen2.5-7b": (7_615_616_512, HUB),
    "qwen2.5-vl-7b": (8_292_166_656, HUB),
    "qwen3-0.6b": (596_049_920, CLASS),
    "qwen3-8b": (8_190_735_360, HUB),
    "qwen3-30b-a3b": (30_532_122_624, CLASS),
    "qwen3-32b": (32_762_123_264, CLASS),
    "qwen3-235b-a22b": (235_093_634_560, HUB),
    "qwen3-coder-480b-a35b": (480_154_875_392, HUB),
    "qwen3-next-80b-a3b": (79_674_391_296, HUB),
    "qwen3-vl-8b": (8_767_123_696, CLASS),
    "qwen3-vl-235b-a22b": (235_670_022_896, CLASS),
    "starcoder2": (7_173_923_840, CLASS),
}
#: Active parameters as the model cards round them; `table` where the card leaves the embedding table out.
ACTIVE = {
    "mixtral-8x7b": (12.9, False),
    "mixtral-8x22b": (39, False),
    "deepseek-v3": (37, False),
    "gpt-oss-20b": (3.6, True),
    "gpt-oss-120b": (5.1, True),
    "qwen1.5-moe-a2.7b": (2.7, False),
    "qwen3-30b-a3b": (3.3, False),
    "qwen3-235b-a22b": (22, False),
    "qwen3-coder-480b-a35b": (35, False),
    "llama4-maverick": (17, False),
    "deepseek-moe-v1": (2.8, False),
}
#: Refused, and why: the copy lacks the key that says whether queries are compressed.
REFUSED = {"deepseek-v2-lite": ("/q_lora_rank", "missing")}
#: Names whose figure is not the size of the model, or is rounded to less than one digit.
LOOSE_NAMES = {"qwen1.5-moe-a2.7b", "mixtral-8x7b", "mixtral-8x22b", "phi-2-msft"}


SIZE = re.compile(r"-(\d+(?:\.\d+)?)(b|m)(?:-|$)")
"""a size in a name"""


def count(name: str) -> ParameterCount:
    """The parameters of a shared config."""
    config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    return count_model_parameters(import_hf_config(config).model)


def names() -> list[str]:
    """All shared configs; none where the folder is not there."""
    return sorted(file.stem for file in CONFIGS.glob("*.json"))


@pytest.mark.parametrize("name", sorted(EXACT))
def test_exact_counts(name: str) -> None:
    """Within 0.5 % of what the publisher states; most are equal to the last digit."""
    assert count(name).total == pytest.approx(EXACT[name][0], rel=0.005), EXACT[name][1]


def test_most_are_equal_to_the_last_digit() -> None:
    """Routing corrections, class tokens, wide head norms and padded tables come to less than 0.02 %."""
    same = [name for name, (published, _) in EXACT.items() if count(name).total == published]
    assert len(same) >= 30
    strange = {name: count(name).total / EXACT[name][0] - 1 for name in EXACT if name not in same}
    assert all(abs(error) < 2e-4 for error in strange.values()), strange


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_active_parameters(name: str) -> None:
    """Within the rounding of the card."""
    published, without_table = ACTIVE[name]
    found = count(name)
    active = found.active - (found.parts.embedding if without_table else 0)
    digits = 1 if isinstance(published, float) else 0
    assert abs(active / 1e9 - published) <= 0.6 * 10**-digits, active


def sized_names() -> list[str]:
    """Configs that are read and whose name says their size."""
    return [name for name in names() if SIZE.search(name) and name not in REFUSED and name not in LOOSE_NAMES]


@pytest.mark.parametrize("name", sized_names())
def test_rounded_names(name: str) -> None:
    """A name such as ...-8b is the total, rounded to the digits it has."""
    found = SIZE.search(name)
    assert found is not None
    scale = 1e9 if found[2] == "b" else 1e6
    said = float(found[1])
    unit = 10.0 ** (math.floor(math.log10(said)) - 1) if said >= 10 else 1.0 if "." not in found[1] else 0.1
    assert abs(count(name).total / scale - said) <= max(unit, 0.05 * said) * 1.3, count(name).total


def test_every_shared_config_is_read_or_refused_with_its_reason() -> None:
    """No config is read as something else; what is refused names the key."""
    refused = {}
    for name in names():
        try:
            assert count(name).total > 0
        except InvalidProblem as error:
            refused[name] = (error.errors[0].pointer, error.errors[0].code)
    assert refused == REFUSED
    assert set(EXACT) | set(REFUSED) | {"llama4-maverick"} == set(names())
