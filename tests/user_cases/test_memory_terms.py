"""Which bytes exist at all: threads whose answer is a term that estimators leave out. Assumed values stand in each test."""

from __future__ import annotations

import pytest

from tests.user_cases.asking import GIB, Ask, dense, devices, gpt, question

MIXTRAL = {"preset": "mixtral-8x7b"}


def test_stage_three_needs_more_than_its_states(ask: Ask) -> None:
    """deepspeedai/DeepSpeed#4527 (A11): 6.805 B parameters on 4 GPUs, estimated at 0.49 to 29 GB, observed 14.7 to 21.3 GB.

    Assumed: a Llama of 6.8 B, optimizer in host memory (the estimator then says 4 x largest layer + 2 P / D = 3.9 GiB), 2,048
    tokens, 4 sequences a device, all layers recomputed, A100 of 40 GB.
    """
    problem = question(dense(32, 4096, 32, 11008, 40176), devices("A100-SXM4-40", 4, 4), 2048, 64, "deepspeed")
    answer = ask(problem, dp=4, zero=3, offload_optimizer=1.0, recompute="full", mbs=4)
    parameters = 6.805e9
    estimate = 4 * answer.item("buffers") / 8 + 2 * parameters / 4
    assert answer.worst("allocated") > 2 * estimate
    assert 14.7e9 < answer.worst("device") < 21.3e9
    assert min(answer.item(name) for name in ("activations", "logits", "buffers")) > 1e9
    assert answer.stages[0]["allocator"] > 0


@pytest.mark.parametrize(("tp", "ep", "etp"), [(2, 8, 1), (4, 4, 2), (1, 8, 1), (8, 2, 1)])
def test_experts_are_cut_over_their_own_ranks(ask: Ask, tp: int, ep: int, etp: int) -> None:
    """NVIDIA/Megatron-LM#4050 (A12): sharded / TP, norms and router / 1, experts / (ETP EP), their optimizer / expert-DP."""
    dp = 16 // tp
    answer = ask(question(MIXTRAL, devices("H100-SXM5-80", 16), 4096, 64), tp=tp, dp=dp, ep=ep, etp=etp)
    h, layers, experts, width = 4096, 32, 8, 14336
    routed = layers * experts * 3 * h * width / (etp * ep)
    sharded = (layers * (2 * h * h + 2 * h * 1024) + 2 * 32000 * h) / tp
    replicated = layers * (2 * h + h * experts) + h
    assert answer.item("weights") == pytest.approx(2 * (routed + sharded + replicated), rel=1e-3)
    copies = tp * dp / (ep * etp)
    assert answer.item("optimizer") == pytest.approx(12 * (routed / copies + (sharded + replicated) / dp), rel=1e-3)


def test_tied_embeddings_are_kept_twice_by_a_pipeline(ask: Ask) -> None:
    """NVIDIA/Megatron-LM#299 (A20): first and last stage both hold V h / TP."""
    model = gpt(24, 1024, 16, 50257, tied_embeddings=True)
    one = ask(question(model, devices("A100-SXM4-40", 8), 1024, 64), tp=2, dp=4)
    two = ask(question(model, devices("A100-SXM4-40", 8), 1024, 64), tp=2, pp=2, dp=2)
    table = 50432 * 1024 / 2  # padded to 128 x tp
    difference = two.item("weights") + two.item("weights", 1) - one.item("weights")
    assert difference == pytest.approx(2 * table, rel=1e-6)
    assert "50432" in " ".join(two.plan["warnings"] if two.plan else [])


def test_key_value_heads_are_copied(ask: Ask) -> None:
    """pytorch/torchtitan PR#2577 (A05): two key/value heads at tp 4 are on every rank, not half of them."""
    model = dense(16, 2048, 16, 8192, 32768, kv_heads=2)
    two, four = (ask(question(model, devices("H100-SXM5-80", 8), 4096, 64), tp=tp, dp=8 // tp).item("weights") for tp in (2, 4))
    kept_whole = 2 * 16 * 2 * 2048 * 128  # keys and values of one head, 16 layers, 2 bytes
    norms = 2 * (2 * 16 + 1) * 2048
    assert four - kept_whole - norms == pytest.approx((two - kept_whole - norms) / 2)


def test_scores_and_masks_of_unfused_attention(ask: Ask) -> None:
    """NVIDIA/Megatron-LM#525: GPT-2 of 774 M dies on 32 GB although 23.3 GB were computed by hand.

    Assumed: 1,024 tokens, 6 sequences a GPU (18 bytes a parameter and 34 s b h a layer make the 23.3 GB), dropout 0.1, DDP.
    """
    model = gpt(36, 1280, 20, 50257, tied_embeddings=True, learned_positions=1024)
    place = devices("V100-SXM2-32", 8)
    unfused, flash = (
        ask(
            question(model, place, 1024, 48, "megatron-lm-2021", precision="fp16", kernels={"attention": kernel, "dropout": 0.1}),
            dp=8,
            mbs=6,
        )
        for kernel in ("unfused", "flash")
    )
    states = sum(flash.item(name) for name in ("weights", "gradients", "optimizer"))
    assert states + 34 * 1024 * 6 * 1280 * 36 == pytest.approx(23.3e9, rel=0.02)
    assert unfused.item("activations") - flash.item("activations") > 5 * 20 * 1024**2 * 6 * 36 * 0.95
    assert (unfused.verdict, flash.verdict) == ("does_not_fit", "ok")


def test_routed_activations_are_not_divided_by_expert_parallelism(ask: Ask) -> None:
    """NVIDIA/Megatron-LM#2439, #1784, #1475: top_k s b f_moe, divided by ETP and not by EP."""
    base, spread, cut = (
        ask(question(MIXTRAL, devices("H200-SXM-141", 16), 4096, 64), tp=2, pp=2, dp=4, ep=ep, etp=etp, zero=1)
        for ep, etp in ((1, 1), (8, 1), (1, 2))
    )
    assert spread.item("activations") == base.item("activations")
    width = 14336 * 2 * 1.1 * 4096 * 16 * 2 * 3 * 2  # f x top_k x imbalance x tokens x layers x in flight x tensors x bytes
    assert cut.item("activations") < base.item("activations") + width
    assert spread.item("weights") < base.item("weights") / 3


def test_imbalance_of_experts_needs_room(ask: Ask) -> None:
    """NVIDIA/Megatron-LM#1445, #1839: dies after hundreds of steps; DeepSeek-V2-like (60 layers, h 5120, 160 experts), EP 8.

    Assumed: 128 H100, TP 8, PP 4, 4,096 tokens, top 6 of width 1536; a busiest rank of 1.0 and of 1.5 times the mean.
    """
    attention = {"kind": "softmax", "heads": 40, "kv_heads": 8, "head_dim": 128}
    mlp = {"kind": "moe", "hidden_size": 1536, "experts": 160, "top_k": 6, "shared_hidden_size": 3072}
    model = {
        "transformer": {
            "hidden_size": 5120,
            "vocab_size": 102400,
            "blocks": [{"repeat": 60, "attention": attention, "mlp": mlp}],
        }
    }
    even, uneven = (
        ask(question(model, devices("H100-SXM5-80", 128), 4096, 128, expert_imbalance=value), tp=8, pp=4, dp=4, ep=8)
        for value in (1.0, 1.5)
    )
    rows = 6 * 4096 / 8  # of one micro-batch on a rank, sequence parallel
    more = 0.5 * rows * (2 * 5120 + 2 * 5120 + 6 * 1536) * 15 * 4
    assert uneven.item("activations") - even.item("activations") == pytest.approx(more, rel=1e-6)


def test_loading_the_optimizer_is_a_peak_of_its_own(ask: Ask) -> None:
    """NVIDIA/Megatron-LM#1509: trains, but dies when the optimizer states are loaded.

    Assumed: 2.8 B parameters without a distributed optimizer on one A100 of 80 GB a replica, 2,048 tokens.
    """
    model = gpt(32, 2560, 32, 50304)
    answer = ask(question(model, devices("A100-SXM4-80", 8), 2048, 8), dp=8, zero=0, recompute="full")
    assert answer.verdict == "ok"
    assert any("loading a checkpoint" in note for note in answer.plan["warnings"]) if answer.plan else False
    sharded = ask(question(model, devices("A100-SXM4-80", 8), 2048, 8), dp=8, zero=1, recompute="full")
    assert not any("loading a checkpoint" in note for note in sharded.plan["warnings"]) if sharded.plan else False


@pytest.mark.parametrize(("rows", "read_gib"), [(8192, 3.1), (32768, 11.7), (65536, 23.2), (131072, 46.2), (262144, 92.2)])
def test_cross_entropy_of_a_shard_of_the_vocabulary(ask: Ask, rows: int, read_gib: float) -> None:
    """NovaSky-AI/SkyRL PR#1841: 62,080 logits a token and rank; 6 bytes each.

    Assumed: GB are GiB; vocabulary 496,640 over tp 8; a small model, so that the loss is the largest item.
    """
    model = dense(2, 1024, 16, 4096, 496640)
    problem = question(model, devices("B300-SXM-288", 8), rows, 8, kernels={"loss": "fused"})
    assert ask(problem, tp=8, dp=1, recompute="full").item("logits") / GIB == pytest.approx(read_gib, rel=0.1)


def test_chunked_loss_saves_what_was_measured(ask: Ask) -> None:
    """NovaSky-AI/SkyRL PR#1610: 65 k tokens of a 128 k vocabulary in chunks save 42 GB. Assumed: 6 bytes a logit unchunked."""
    whole, chunked = (
        ask(
            question(
                dense(2, 1024, 16, 4096, 128256),
                devices("B300-SXM-288", 8),
                65536,
                8,
                {"name": "megatron-core", "assumptions": {"loss_bytes_per_logit": 6}},
                kernels={"loss": loss},
            ),
            dp=8,
            recompute="full",
        )
        for loss in ("vocab_parallel", "chunked")
    )
    assert (whole.item("logits") - chunked.item("logits")) / GIB == pytest.approx(42, rel=0.05)


def test_logits_are_on_the_last_stage_over_tp_and_cp(ask: Ask) -> None:
    """verl-project/verl PR#7686: T V b / (TP CP), on the last stage."""
    model = dense(8, 1024, 16, 4096, 131072)
    place = devices("H200-SXM-141", 16)

    def logits(**words: int) -> list[float]:
        answer = ask(question(model, place, 32768, 16), recompute="full", **words)
        return [float(stage["items"].get("logits", 0.0)) for stage in answer.stages]

    (one,) = logits(dp=16)
    assert one == 10 * 32768 * 131072
    assert logits(tp=4, dp=4) == [one / 4]
    assert logits(tp=2, cp=4, dp=2) == [one / 8]
    assert logits(pp=2, dp=8) == [0.0, one]


def test_a_large_vocabulary_does_not_fit_a_few_devices(ask: Ask) -> None:
    """NVIDIA/Megatron-LM#92: out of memory with a very large vocabulary.

    Assumed: a GPT of 24 layers and width 1,024, 8 sequences of 1,024 tokens, 2 A100 of 40 GB; 50,257 and 500,000 entries.
    """
    small, large = (
        ask(question(gpt(24, 1024, 16, entries, tied_embeddings=True), devices("A100-SXM4-40", 2, 2), 1024, 64), dp=2, mbs=8)
        for entries in (50257, 500_000)
    )
    assert (small.verdict, large.verdict) == ("ok", "does_not_fit")
    assert large.item("logits") == max(large.stages[0]["items"].values())
