"""Saved bytes per layer and peak bytes per logit against PyTorch's own autograd, on CPU; skipped where torch is not installed.

Storages that autograd keeps for the backward are counted once each, parameters left out. One block without rotary embedding
and dropout (CPU keeps 2-byte masks).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed", exc_type=ImportError)

from torch import nn  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from solver.certify.saved import Saved, Software, layer_input, operator_saved, saved_tensors  # noqa: E402
from solver.certify.tensors import Grid  # noqa: E402
from solver.problem import Block, Transformer  # noqa: E402

BATCH, LENGTH, HIDDEN, HEADS, KEY_HEADS, WIDTH, FFN = 2, 256, 512, 8, 2, 64, 1408
EXPERTS, CHOSEN, EXPERT_FFN = 8, 2, 384
TOKENS = BATCH * LENGTH
GRID = Grid(1, 1, 1, 1, False, LENGTH, float(TOKENS), 2, 1.0, 1)
FUSED = Software(unfused_attention=False, eager_activation=True, eager_norm_bytes=0.0, dropout=False, permute_copies=1.0)
ATTENTION = {"kind": "softmax", "heads": HEADS, "kv_heads": KEY_HEADS, "head_dim": WIDTH}
MLPS = {
    "swiglu": {"kind": "dense", "hidden_size": FFN},
    "gelu": {"kind": "dense", "hidden_size": FFN, "gated": False},
    "experts": {"kind": "moe", "hidden_size": EXPERT_FFN, "experts": EXPERTS, "top_k": CHOSEN},
}


class EagerNorm(nn.Module):
    """The RMSNorm of many model files: in fp32, cast, then scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN, dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


class WideNorm(nn.RMSNorm):
    """Decomposed on CPU: scaled in fp32, then cast."""

    def __init__(self) -> None:
        super().__init__(HIDDEN, dtype=torch.bfloat16)


class FusedNorm(nn.LayerNorm):
    """The norm that is one operator on CPU."""

    def __init__(self) -> None:
        super().__init__(HIDDEN, dtype=torch.bfloat16)


def linear(inputs: int, outputs: int) -> Any:
    return nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)


class Experts(nn.Module):
    """Top-k routing with an eager permutation: rows are gathered, run expert by expert, weighted and added back."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.gate, self.up, self.down = (
            nn.Parameter(torch.randn(EXPERTS, *size, dtype=torch.bfloat16) * 0.02)
            for size in ((HIDDEN, EXPERT_FFN), (HIDDEN, EXPERT_FFN), (EXPERT_FFN, HIDDEN))
        )

    def forward(self, x: Any) -> Any:
        flat = x.reshape(-1, HIDDEN)
        scores, chosen = torch.softmax(self.router(flat.float()), dim=-1).topk(CHOSEN, dim=-1)
        order = torch.argsort(chosen.reshape(-1), stable=True)
        rows = flat.repeat_interleave(CHOSEN, dim=0)[order]
        sizes = torch.bincount(chosen.reshape(-1), minlength=EXPERTS).tolist()
        parts = []
        for index, part in enumerate(rows.split(sizes)):
            inner = functional.silu(part @ self.gate[index]) * (part @ self.up[index])
            parts.append(inner @ self.down[index])
        weighted = torch.cat(parts) * scores.reshape(-1, 1)[order].to(torch.bfloat16)
        return torch.zeros_like(flat).index_add(0, order // CHOSEN, weighted).view_as(x)


class Layer(nn.Module):
    def __init__(self, mlp: str, norm: type[nn.Module], *, unfused: bool = False) -> None:
        super().__init__()
        self.mlp, self.unfused = mlp, unfused
        self.before, self.between = norm(), norm()
        self.query, self.key, self.value = (linear(HIDDEN, heads * WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
        self.out = linear(HEADS * WIDTH, HIDDEN)
        self.gate, self.up, self.down = linear(HIDDEN, FFN), linear(HIDDEN, FFN), linear(FFN, HIDDEN)
        self.experts = Experts()

    def attention(self, x: Any) -> Any:
        query, key, value = (
            projection(x).view(BATCH, LENGTH, heads, WIDTH).transpose(1, 2)
            for projection, heads in ((self.query, HEADS), (self.key, KEY_HEADS), (self.value, KEY_HEADS))
        )
        if self.unfused:
            groups = query.reshape(BATCH, KEY_HEADS, HEADS // KEY_HEADS * LENGTH, WIDTH)
            scores = torch.softmax(groups @ key.transpose(-1, -2), dim=-1)
            mixed = (scores @ value).view(BATCH, HEADS, LENGTH, WIDTH)
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(BATCH, LENGTH, HEADS * WIDTH))

    def feed_forward(self, x: Any) -> Any:
        if self.mlp == "experts":
            return self.experts(x)
        if self.mlp == "gelu":
            return self.down(functional.gelu(self.up(x)))
        return self.down(functional.silu(self.gate(x)) * self.up(x))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.feed_forward(self.between(x))


def traced_bytes(module: nn.Module, run: Callable[[Any], Any] | None = None) -> float:
    """Bytes of the storages autograd keeps after the forward pass, without those of parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            alive.append(storage)
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(BATCH, LENGTH, HIDDEN, dtype=torch.bfloat16).requires_grad_()
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        (run or module)(x)
    return float(sum(kept.values()))


def block_of(mlp: str) -> tuple[Transformer, Block]:
    block = Block.model_validate({"attention": ATTENTION, "mlp": MLPS[mlp]})
    return Transformer(hidden_size=HIDDEN, vocab_size=0, blocks=(block,)), block


def size(tensors: Any) -> float:
    return sum(tensor.size_bytes for tensor in tensors)


@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
def test_a_layer_keeps_what_autograd_keeps(mlp: str) -> None:
    assert size(saved_tensors(*block_of(mlp), GRID, FUSED)) == pytest.approx(traced_bytes(Layer(mlp, FusedNorm)), rel=0.01)


def test_experts_keep_what_autograd_keeps() -> None:
    """Less the output of the second norm, which here only the router's cast and an index read."""
    torch.manual_seed(0)
    unread = 2 * HIDDEN * TOKENS
    listed = size(saved_tensors(*block_of("experts"), GRID, FUSED)) - unread
    assert listed == pytest.approx(traced_bytes(Layer("experts", FusedNorm)), rel=0.01)


@pytest.mark.parametrize(("norm", "kept_bytes"), [(WideNorm, 6.0), (EagerNorm, 4.0)])
def test_an_eager_norm_keeps_wide_copies(norm: type[nn.Module], kept_bytes: float) -> None:
    eager = replace(FUSED, eager_norm_bytes=kept_bytes)
    traced = traced_bytes(Layer("swiglu", norm))
    assert size(saved_tensors(*block_of("swiglu"), GRID, eager)) == pytest.approx(traced, rel=0.01)


def test_unfused_attention_keeps_the_scores() -> None:
    unfused = replace(FUSED, unfused_attention=True)
    traced = traced_bytes(Layer("swiglu", FusedNorm, unfused=True))
    assert size(saved_tensors(*block_of("swiglu"), GRID, unfused)) == pytest.approx(traced, rel=0.01)


def test_full_recompute_keeps_the_input() -> None:
    layer = Layer("swiglu", FusedNorm)
    traced = traced_bytes(layer, lambda x: checkpoint(layer, x, use_reentrant=False))
    assert layer_input(block_of("swiglu")[0], GRID).size_bytes == pytest.approx(traced, rel=0.01)


def test_operators_keep_every_second_product() -> None:
    """torchtitan's selective op: attention and every second product, by the policy it passes to PyTorch."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    kept: list[Saved] = list(operator_saved(*block_of("swiglu"), GRID, FUSED))
    seen = {"forward": 0}
    saved_bytes = {"total": TOKENS * HIDDEN * 2}
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

    def policy(context: Any, operator: Any, *arguments: Any, **_: Any) -> Any:
        if operator == torch.ops.aten.mm.default and not context.is_recompute:
            seen["forward"] += 1
            if seen["forward"] % 2:
                saved_bytes["total"] += arguments[0].shape[0] * arguments[1].shape[1] * 2
                return CheckpointPolicy.MUST_SAVE
        if operator == attention and not context.is_recompute:
            saved_bytes["total"] += TOKENS * HEADS * (2 * WIDTH + 4)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    layer = Layer("swiglu", FusedNorm)
    x = torch.randn(BATCH, LENGTH, HIDDEN, dtype=torch.bfloat16).requires_grad_()
    checkpoint(layer, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
    assert seen["forward"] == 7
    assert size(kept) == pytest.approx(saved_bytes["total"], rel=0.01)


class Live(TorchDispatchMode):
    """Peak bytes of all storages that operators made and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def _drop(self, pointer: int, nbytes: int) -> None:
        self.known.discard(pointer)
        self.now -= nbytes

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        for tensor in tree_leaves(result):
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            pointer, nbytes = storage._cdata, storage.nbytes()
            if pointer not in self.known:
                self.known.add(pointer)
                self.now += nbytes
                weakref.finalize(storage, self._drop, pointer, nbytes)
        self.peak = max(self.peak, self.now)
        return result


@pytest.mark.parametrize(("wide", "bytes_each"), [(True, 14.0), (False, 8.0)])
def test_cross_entropy_peaks_at(wide: bool, bytes_each: float) -> None:
    """The eager loss in fp32 takes 14 bytes a logit (`gathered`), in bf16 8; the logits are made under the count."""
    tokens, entries = 512, 4096
    hidden = torch.randn(tokens, 16, dtype=torch.bfloat16, requires_grad=True)
    table = torch.randn(entries, 16, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(0, entries, (tokens,))
    with Live() as live:
        logits = hidden @ table.T
        loss = functional.cross_entropy(logits.float() if wide else logits, targets)
        loss.backward()
    assert live.peak / (tokens * entries) == pytest.approx(bytes_each, rel=0.05)
