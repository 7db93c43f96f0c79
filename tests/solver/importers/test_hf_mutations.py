"""500 damaged configs: each is refused, or read as what it was, or as another model whose difference is told."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.errors import InvalidProblem
from solver.importers import import_hf_config
from solver.problem import Model, count_model_parameters
from tests.solver.importers.configs import ALL
from tests.solver.importers.reading import CONFIGS

MUTANTS = 500
SEED = 20261130
#: What no key of a config may become without being noticed.
WRONG: tuple[Any, ...] = (
    "4096", "", [], {}, [[]], {"a": None}, {"a": {"b": [None, None]}}, True, 3.5, -1, -4096, 2**70, 10**40, float("nan"),
    float("inf"), -float("inf"),
)  # fmt: skip
#: Values that are a statement of their own: -1 is "the last layer", lists may hold any number, an empty list is none.
SAID = {
    "moe_layer_end_index": (-1,),
    "mlp_only_layers": ([],),
    "layer_types": ([],),
    "attn_type_list": ([],),
    "architectures": ([],),
    "fullatt_block_indexes": ([],),
    "deepstack_visual_indexes": ([],),
    "full_attn_layers": ([],),
    "mlp_ratio": (3.5,),
}
Config = dict[str, Any]
Place = tuple[str, ...]


def originals() -> dict[str, Config]:
    """The configs of the tests, and the shared ones where they are at hand."""
    shared = {f"shared {file.stem}": json.loads(file.read_text(encoding="utf-8")) for file in sorted(CONFIGS.glob("*.json"))}
    return {name: config for name, config in {**ALL, **shared}.items() if outcome(config)[0] is not None}


def outcome(config: Config) -> tuple[Model | None, str]:
    """The validated model and its warnings; no model when refused, with the refusals. Anything else raises."""
    try:
        imported = import_hf_config(config)
    except InvalidProblem as error:
        found = error
    else:
        assert count_model_parameters(imported.model).total > 0
        return Model.model_validate(imported.model), "\n".join(imported.warnings)
    assert all(item.pointer.startswith("/") and item.message for item in found.errors)
    return None, str(found)


def places(config: Config, at: Place = ()) -> list[Place]:
    """Every key, those of nested objects too."""
    found: list[Place] = []
    for key, value in config.items():
        found.append((*at, key))
        if isinstance(value, dict):
            found += places(value, (*at, key))
    return found


def mutant(config: Config, place: Place, how: str, generator: random.Random) -> Config:
    """A copy with one key removed, renamed, set to null or to a value of a wrong kind."""
    result = copy.deepcopy(config)
    holder: Any = result
    for key in place[:-1]:
        holder = holder[key]
    if how == "removed":
        del holder[place[-1]]
    elif how == "renamed":
        holder[place[-1][:-1] + "x_" + place[-1][-1]] = holder.pop(place[-1])
    elif how == "null":
        holder[place[-1]] = None
    else:
        allowed = SAID.get(place[-1], ())
        before = holder[place[-1]]
        wrong = [value for value in WRONG if value not in allowed and not (isinstance(before, bool) and value is True)]
        holder[place[-1]] = generator.choice(wrong)
    return result


def test_500_damaged_configs() -> None:
    """Never a traceback, never silently another model."""
    generator = random.Random(SEED)
    configs = originals()
    refused = told = same = 0
    for number in range(MUTANTS):
        name = generator.choice(sorted(configs))
        place = generator.choice(places(configs[name]))
        how = generator.choice(["removed", "removed", "renamed", "null", "wrong", "wrong"])
        before, _ = outcome(configs[name])
        changed = mutant(configs[name], place, how, generator)
        after, words = outcome(changed)
        what = f"{number}: {name} {'/'.join(place)} {how}: {words}"
        if after is None:
            refused += 1
        elif after == before:
            same += 1
        else:
            told += 1
            assert mentions(words, place), f"another model without a word, {what}"
    assert refused + told + same == MUTANTS
    assert refused > MUTANTS / 4, (refused, told, same)


#: Keys under whose other names, or in whose words, an absence is told.
TOLD_AS = {
    "n_inner": "feed-forward width",
    "intermediate_size": "feed-forward width",
    "num_kv_heads": "num_key_value_heads",
    "n_head_kv": "num_key_value_heads",
    "sliding_window_size": "sliding_window",
    "attention_head_dim": "head_dim",
    "in_chans": "in_channels",
    "num_channels": "in_channels",
    "sliding_window_pattern": "layer_types",
    "model_type": "not known",
    "architectures": "not known",
    "attn_config": "num_key_value_heads",
    "kv_n_heads": "num_key_value_heads",
    "text_config": "hidden_size",
    "vision_config": "vision_config",
}


def mentions(words: str, place: Place) -> bool:
    """The warnings speak of the key, or of what it says."""
    return place[-1] in words or TOLD_AS.get(place[-1], place[-1]) in words


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.data())
def test_any_value_in_any_field(family: str, data: st.DataObject) -> None:
    """Read into a valid model, or refused."""
    config = dict(ALL[family])
    config[data.draw(st.sampled_from(sorted(config)))] = data.draw(ODD)
    outcome(config)


@pytest.mark.parametrize("value", [None, [], {}, 3, "x", [None], {"text_config": {"text_config": {}}}])
@pytest.mark.parametrize("key", ["text_config", "vision_config", "llm_config", "thinker_config", "ffn_config", "attn_config"])
def test_nested_parts_that_are_no_parts(key: str, value: Any) -> None:
    """Read or refused, also where there should be an object."""
    for config in ALL.values():
        outcome({**config, key: value})
