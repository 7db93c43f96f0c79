"""Releases of Megatron-core whose behaviour was read from their sources, oldest first.

0.10 to 0.16 from the published packages (transformer_config.py, transformer_block.py, pipeline_parallel_layer_layout.py,
schedules.py, moe/), 0.20 from Megatron-LM main of August 2026 with its training arguments. 0.17 to 0.19 were not read and are
not offered. What TransformerConfig checks was compared with that of every published package on thousands of random launches.
What changed on the way stands as `since` and `until` at the rules.
"""

from __future__ import annotations

from typing import Final

RELEASES: Final = ("0.10", "0.11", "0.12", "0.13", "0.14", "0.15", "0.16", "0.20")
LATEST: Final = RELEASES[-1]

#: First releases with: account flags of embedding and loss; recompute modules and MTP; layout strings; MoE all-to-all overlap;
#: no biased experts at all, then biased experts at etp 1; replicated key/value heads, fine-grained offload, linear attention.
ACCOUNT_FLAGS: Final = "0.11"
RECOMPUTE_MODULES: Final = "0.12"
MULTI_TOKEN_PREDICTION: Final = "0.12"
LAYOUT_STRING: Final = "0.13"
EXPERT_OVERLAP: Final = "0.14"
SHARED_EXPERTS_RECOMPUTED: Final = "0.14"
NO_BIASED_EXPERTS: Final = "0.13"
BIASED_EXPERTS: Final = "0.15"
REPLICATED_KV_HEADS: Final = "0.16"
LINEAR_ATTENTION: Final = "0.16"
FINE_GRAINED_OFFLOAD: Final = "0.16"
LINEAR_CONTEXT_PARALLEL: Final = "0.20"
#: From here on a first and a last stage that leave layers over are noticed; the releases before drop them, 0.11 and 0.12 stop.
LEFT_OVER_LAYERS: Final = "0.16"
EARLY_SEQUENCE_PARALLEL_CHECK: Final = "0.15"
HYPER_CONNECTIONS: Final = "0.20"


def order(release: str) -> tuple[int, ...]:
    """Sort key of a release."""
    return tuple(int(part) for part in release.split("."))


def within(release: str, since: str | None, until: str | None) -> bool:
    """Whether a release is at least `since` and before `until`."""
    return (since is None or order(release) >= order(since)) and (until is None or order(release) < order(until))
