"""Which groups a layout in classical words uses: named when there are several, and never splitting a replica."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from solver.layout import UniformLayout
from solver.plan import Violation
from solver.problem.problem import Problem


def group_violations(problem: Problem, layout: UniformLayout, dp: int) -> Iterator[Violation]:
    """L10: groups exist, are named once, in rank order, when the cluster has several. L11: a replica is of one group."""
    sizes = {group.name: group.devices for group in problem.cluster.groups}
    names = layout.groups or ()
    if layout.groups is None and len(sizes) > 1:
        yield _broken("L10", "the cluster has several groups; name those to use, in rank order", {"groups": list(sizes)})
        return
    if len(set(names)) != len(names):
        yield _broken("L10", "a group is named twice", {"groups": list(sizes)})
    unknown = [name for name in names if name not in sizes]
    for name in unknown:
        yield _broken("L10", f"there is no group {name!r}", {"groups": list(sizes)}, groups=name)
    if not unknown:
        yield from _split_replicas(layout, dp, [sizes[name] for name in names])


def _split_replicas(layout: UniformLayout, dp: int, sizes: list[int]) -> Iterator[Violation]:
    replica = layout.tp * layout.cp
    used = replica * dp * layout.pp
    for end in accumulate(sizes[:-1]):
        if end < used and end % replica:
            text = f"device {end} of the launch order starts another group inside a replica of tp {layout.tp} x cp {layout.cp}"
            yield _broken("L11", text, {}, tp=layout.tp, cp=layout.cp)


def _broken(rule: str, text: str, nearest: dict[str, Any], **values: Any) -> Violation:
    return Violation(rule=rule, severity="refused", message=text, values=values, nearest=nearest)
