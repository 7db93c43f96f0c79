"""The string of --pipeline-model-parallel-layout, read as Megatron reads it (pipeline_parallel_layer_layout.py).

Virtual stages in pipeline order are separated by `|`; E embedding, t one layer, m one multi-token prediction layer, L loss; `x*n`
and `(x)*n` repeat; commas are passed over.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(r"\(([EtmL|]*(?:[EtmL|]\*\d+[EtmL|]*)*)\)(?:\*(\d{1,6}))?|([EtmL|])(?:\*(\d{1,6}))?")
_MAX_ITEMS: Final = 100_000


class LayoutStringError(ValueError):
    """The string is not in the grammar, or it stands for too many items."""


def expand(text: str, depth: int = 0) -> str:
    """The string without repeats: `Et*2|` is `Ett|`."""
    made, at, text = [], 0, text.replace(",", "").replace(" ", "")
    total = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or depth > 1:
            raise LayoutStringError(f"character {at + 1} of the layout is not understood")
        group, group_times, letter, times = found.groups()
        part = letter or expand(group, depth + 1)
        count = int(times or group_times or 1)
        total += len(part) * count
        if total > _MAX_ITEMS:
            raise LayoutStringError(f"the layout stands for more than {_MAX_ITEMS} items")
        made.append(part * count)
        at = found.end()
    return "".join(made)


def virtual_stages(text: str) -> list[str]:
    """What every virtual stage holds, in pipeline order."""
    return expand(text).split("|")


def stage_count(text: str) -> int:
    """How many virtual stages the string has; 0 when it cannot be read."""
    try:
        return len(virtual_stages(text))
    except LayoutStringError:
        return 0


def item_count(text: str, letter: str) -> int:
    """How often an item stands in the string; 0 when it cannot be read."""
    try:
        return expand(text).count(letter)
    except LayoutStringError:
        return 0


def layout_findings(text: str, pp: int, layers: int, mtp_layers: int) -> list[str]:
    """MC19: what is wrong with a layout string, in words; empty when Megatron takes it."""
    try:
        stages = virtual_stages(text)
    except LayoutStringError as error:
        return [str(error)]
    found = []
    if len(stages) % pp:
        found.append(f"{len(stages)} virtual stages do not divide over pp {pp}")
    joined = "".join(stages)
    if not stages[0].startswith("E") or joined.count("E") != 1:
        found.append("one E, the first item, is the embedding")
    if not stages[-1].endswith("L") or joined.count("L") != 1:
        found.append("one L, the last item, is the loss")
    for letter, wanted, what in (("t", layers, "layers"), ("m", mtp_layers, "multi-token prediction layers")):
        if joined.count(letter) != wanted:
            found.append(f"the layout has {joined.count(letter)} {what}, the model has {wanted}")
    return found or _prediction_findings(stages, pp)


def _prediction_findings(stages: list[str], pp: int) -> list[str]:
    """All m in one virtual stage, after every t, in the last chunk of its rank and not on rank 0 unless it is alone."""
    holders = [index for index, stage in enumerate(stages) if "m" in stage]
    if not holders:
        return []
    if len(holders) > 1:
        return ["multi-token prediction layers stand in one virtual stage"]
    (at,) = holders
    if "t" in "".join(stages[at + 1 :]) or "t" in stages[at][stages[at].index("m") :]:
        return ["multi-token prediction layers come after every layer"]
    if at < len(stages) - pp:
        return ["multi-token prediction layers stand in the last virtual stage of their rank"]
    if pp > 1 and at % pp == 0 and len(stages) > pp:
        return ["multi-token prediction layers do not stand on the first rank when it has earlier virtual stages"]
    return []
