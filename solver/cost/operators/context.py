"""What every operator needs: the points, the device, the network, the model's widths and the constants.

`T = mbs x row / cp` tokens of a rank. Formulas: cost_models 1.5-1.7 and the time prototype.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.cost.compute import DeviceCosts
from solver.cost.network import Network
from solver.cost.scenarios import WorkShare
from solver.cost.shared import SharedConstants
from solver.problem import Attention, MoeMlp, Problem


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Arrays of equal length; `sp` 1 where sequence parallel; `tokens` = T."""

    tp: np.ndarray
    cp: np.ndarray
    cp_kind: np.ndarray
    ep: np.ndarray
    etp: np.ndarray
    mbs: np.ndarray
    sp: np.ndarray
    row_tokens: int

    @property
    def tokens(self) -> np.ndarray:
        return np.asarray(self.mbs * self.row_tokens / self.cp)

    @property
    def sequence_divisor(self) -> np.ndarray:
        """Ranks over which norm and residual tensors are spread."""
        return np.where(self.sp > 0, self.tp, 1)

    def __len__(self) -> int:
        return int(self.tp.shape[0])


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """`batch` matrix products [m, k] x [k, n] of the forward pass; arrays over the points. `narrow`: may run in 8 bits."""

    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    batch: np.ndarray
    narrow: bool = True
    grouped: bool = False


class LayerCosts:
    """Points of one problem on one device kind, with everything their operators are priced from."""

    def __init__(
        self,
        problem: Problem,
        device: DeviceCosts,
        network: Network,
        points: Points,
        shares: dict[tuple[int | None, int | None], WorkShare],
        least_work: float,
        shared: SharedConstants,
    ) -> None:
        self.problem = problem
        self.model = problem.transformer
        self.hidden = float(self.model.hidden_size)
        self.workload = problem.workload
        self.kernels = problem.workload.kernels
        self.settings = problem.workload.software.assumptions
        self.shared = shared
        self.device = device
        self.network = network
        self.points = points
        self.shares = shares
        self.least_work = least_work
        self.tokens = points.tokens
        self.local_tokens = self.tokens / points.sequence_divisor
        self.element = device.element_bytes
        self.dropout = self.kernels.dropout > 0.0
        self.gated_tensors = 3.0 if self.kernels.glu == "fused" else 4.0
        self.imbalance = self.workload.expert_imbalance
        self.one = np.ones(len(points))
        self.gather_terms = network.gather(points.tp, self.one)

    def kv_heads(self, attention: Attention) -> np.ndarray:
        """Key/value heads on a rank; more tensor ranks than heads replicate them. MLA expands to all heads."""
        if attention.kind == "mla":
            return np.asarray(attention.heads / self.points.tp)
        return np.asarray(np.maximum(attention.kv_heads / self.points.tp, 1.0))

    def routed_rows(self, mlp: MoeMlp) -> np.ndarray:
        """Token copies that the fullest rank's experts receive from one rank's worth of tokens."""
        return np.asarray(self.imbalance * mlp.top_k * self.local_tokens)

    def gather_s(self, tokens: np.ndarray) -> np.ndarray:
        """All-gather or reduce-scatter of [tokens, hidden] over the tensor ranks."""
        latency, slope = self.gather_terms
        return np.asarray(latency + slope * tokens * self.hidden * self.element)

    def product(
        self,
        m: np.ndarray | float,
        n: np.ndarray | float,
        k: np.ndarray | float,
        batch: np.ndarray | float = 1.0,
        *,
        narrow: bool = True,
        grouped: bool = False,
    ) -> Product:
        """A product with its sizes spread over the points."""
        one = self.one
        return Product(m * one, n * one, k * one, batch * one, narrow, grouped)

    def stream_factor_s(self, moved_bytes: np.ndarray | float) -> np.ndarray:
        """Seconds of bytes-bound operators as the software runs them."""
        return self.device.stream_s(np.asarray(moved_bytes) * self.settings["elementwise_factor"])
