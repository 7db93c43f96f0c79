"""Collectives over the tiers of a group."""

from __future__ import annotations

import numpy as np
import pytest

from solver.cost.network import Network, Tier

NODE = Tier(span=8, bytes_per_s=200e9, latency_s=0.0, base_latency_s=1e-5, rank_latency_s=1e-6)
FABRIC = Tier(span=64, bytes_per_s=20e9, latency_s=0.0, base_latency_s=1e-4, rank_latency_s=0.0)
NETWORK = Network(tiers=(NODE, FABRIC), devices=64, inner_tier_share=0.4)


def one(pair: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """The single entry of (latency, slope)."""
    return float(pair[0][0]), float(pair[1][0])


def sizes(size: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrays of one group."""
    return np.array([size]), np.array([stride])


def test_gather_inside_a_node() -> None:
    """(n - 1) / n of the tensor, and the latency by rank."""
    latency, slope = one(NETWORK.gather(*sizes(8, 1)))
    assert slope == pytest.approx(7 / 8 / 200e9)
    assert latency == pytest.approx(1e-5 + 8e-6)


def test_gather_across_nodes_overlaps_the_inner_tier() -> None:
    """The outer tier counts in full, each rank with its own share of the node's ports, the inner one by 0.4."""
    _, slope = one(NETWORK.gather(*sizes(32, 1)))
    assert slope == pytest.approx(3 / 4 / 8 / 20e9 + 0.4 * 7 / 8 / 200e9)


def test_strided_groups_have_one_member_a_node() -> None:
    """Stride 8: every step leaves the node."""
    _, slope = one(NETWORK.gather(*sizes(8, 8)))
    assert slope == pytest.approx(7 / 8 / 20e9)


def test_exchange_sends_one_copy_to_a_node() -> None:
    """Eight experts in two nodes reach both almost surely: one eighth of the plain traffic crosses, and more is passed on."""
    plain = one(NETWORK.exchange(*sizes(16, 1), 0.0))[1]
    assert plain == pytest.approx(one(NETWORK.all_to_all(*sizes(16, 1)))[1])
    deduplicated = one(NETWORK.exchange(*sizes(16, 1), 8.0))[1]
    nodes, ranks = 2.0 * (1.0 - 0.5**8), 16.0 * (1.0 - (15 / 16) ** 8)
    assert deduplicated == pytest.approx(nodes / 8 / 2 / 20e9 + 0.4 * ranks / 8 * 7 / 8 / 200e9)
    assert deduplicated < plain / 2


def test_one_expert_a_token_gains_nothing_between_nodes() -> None:
    """With one copy there is nothing to send only once."""
    _, slope = one(NETWORK.exchange(*sizes(16, 1), 1.0))
    assert slope == pytest.approx(1 / 2 / 20e9 + 0.4 * 7 / 8 / 200e9)


def test_load_of_a_gather_is_its_bytes_at_the_inner_rate() -> None:
    """All of the time inside a node, a small part of it across nodes, nothing to slow for a single rank."""
    assert NETWORK.load(*sizes(8, 1))[0] == pytest.approx(1.0)
    _, slope = one(NETWORK.gather(*sizes(32, 1)))
    assert NETWORK.load(*sizes(32, 1))[0] == pytest.approx(31 / 32 / 200e9 / slope)
    assert NETWORK.load(*sizes(32, 1))[0] < 0.9
    assert NETWORK.load(*sizes(8, 8))[0] == pytest.approx(0.1)
    assert NETWORK.load(*sizes(1, 1))[0] == 1.0
