"""Files of lengths: every format read, the figures checked against plain arithmetic."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import parse_problem
from solver.importers import Wish, import_lengths, lengths_parquet
from solver.importers.lengths_packing import first_fit_decreasing
from solver.importers.lengths_table import MAX_DISTINCT_LENGTHS, MAX_LENGTH_TOKENS, LengthTable, merged
from solver.problem import lengths as problem_lengths
from tests.solver.importers.length_files import counts_of, mmap_idx, npy, plain_idx, read
from tests.solver.problem.documents import small

LENGTHS = [5, 3, 900, 5, 17]
COUNTS = {3: 1, 5: 2, 17: 1, 900: 1}
SHARED = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).resolve().parents[3] / "../shared")) / "data/lengths"
needs_samples = pytest.mark.skipif(not SHARED.is_dir(), reason="no shared length samples (PLANNER_SHARED_DIR)")


def test_limits_are_those_of_the_problem() -> None:
    """The importer may not import the problem, so the figures stand twice."""
    assert problem_lengths.MAX_LENGTH_TOKENS == MAX_LENGTH_TOKENS
    assert problem_lengths.MAX_DISTINCT_LENGTHS == MAX_DISTINCT_LENGTHS


@pytest.mark.parametrize(
    ("name", "raw", "form"),
    [
        ("a.txt", b"# lengths\n5\n3\n\n900\n5\n17", "lines"),
        ("a.txt.gz", gzip.compress(b"5\r\n3\r\n900\r\n5\r\n17\r\n"), "lines"),
        ("noname", b"5\n3\n900\n5\n17\n", "lines"),
        ("a.csv", b"id,num_tokens\nx,5\ny,3\nz,900\nu,5\nv,17\n", "csv"),
        ("a.csv", b"length,count\n3,1\n5,2\n17,1\n900,1\n400,0\n", "csv"),
        ("a.tsv", b"3\t1\n5\t2\n17\t1\n900\t1\n", "csv"),
        ("noname", b"3,1\n5,2\n17,1\n900,1\n", "csv"),
        ("a.jsonl", b'{"length": 5}\n{"length": 3}\n\n{"length": 900}\n{"length": 5}\n{"length": 17}\n', "jsonl"),
        ("a.jsonl", "\n".join(json.dumps({"text": "x", "input_ids": [1] * n}) for n in LENGTHS).encode(), "jsonl"),
        ("a.jsonl", "\n".join(json.dumps([7] * n) for n in LENGTHS).encode(), "jsonl"),
        ("noname", b'{"seq_len": 5}\n{"seq_len": 3}\n{"seq_len": 900}\n{"seq_len": 5}\n{"seq_len": 17}\n', "jsonl"),
        ("a.json", b"[5, 3, 900, 5, 17]", "json"),
        ("a.json", b'{"counts": [[3, 1], [5, 2], [17, 1], [900, 1]]}', "json"),
        ("a.npy", npy(LENGTHS, "<i8"), "npy"),
        ("a.npy", npy(LENGTHS, ">i4"), "npy"),
        ("a.npy", npy(LENGTHS, "<u2"), "npy"),
        ("a.npy", npy(LENGTHS, "<f4"), "npy"),
        ("a.npy", npy([[3, 1], [5, 2], [17, 1], [900, 1]], "<i8"), "npy"),
        ("a.idx", mmap_idx(LENGTHS), "megatron-idx"),
        ("any", mmap_idx(LENGTHS, code=4, modes=True), "megatron-idx"),
        ("a.idx", plain_idx(LENGTHS), "megatron-idx"),
    ],
)
def test_every_format_gives_the_same_counts(name: str, raw: bytes, form: str) -> None:
    """The problem takes what comes out."""
    imported = read(raw, name)
    assert imported.formats == (form,)
    assert counts_of(imported) == COUNTS
    assert (imported.max_sequence_length, imported.truncate) == (900, False)
    problem = parse_problem(small(**{"workload.sequence_lengths": imported.sequence_lengths}))
    assert problem.workload.max_sequence_length == 900


@pytest.mark.parametrize(("code", "token_bytes"), [(6, 8), (6, 4), (7, 4), (7, 8)])
def test_type_codes_that_changed_places(code: int, token_bytes: int) -> None:
    """Codes 6 and 7 mean float64 and float32 in one release and the other way round in another: the offsets tell."""
    imported = read(mmap_idx(LENGTHS, code=code, token_bytes=token_bytes), "a.idx")
    assert counts_of(imported) == COUNTS
    assert f"{token_bytes} bytes a token" in imported.warnings[0]


def test_documents_of_several_sequences_are_added_up() -> None:
    """By the document boundaries, also across the pieces in which the file is read."""
    imported = read(mmap_idx([5, 3, 900, 5, 17], ends=[2, 3, 5]), "a.idx")
    assert counts_of(imported) == {8: 1, 900: 1, 22: 1}
    many = [1 + i % 7 for i in range(600_000)]
    ends = list(range(3, 600_001, 3))
    table = read(mmap_idx(many, ends=ends), "a.idx")
    values, numbers = np.unique(np.array(many).reshape(-1, 3).sum(axis=1), return_counts=True)
    assert counts_of(table) == dict(zip(values.tolist(), numbers.tolist(), strict=True))


@pytest.mark.parametrize(
    ("raw", "edges", "counts"),
    [
        (b'range,number,percentage(%)\n"[0, 10]",3,30\n"[11, 50]",7,70\n', [0, 10, 50], [3, 7]),
        (b"lo,hi,count\n0,10,3\n10,50,7\n", [0, 10, 50], [3, 7]),
        (b"0,10,3\n21,50,7\n", [0, 10, 20, 50], [3, 0, 7]),
        (b"bin,count\n0-10,3\n11-50,7\n", [0, 10, 50], [3, 7]),
    ],
)
def test_histograms_in_csv(raw: bytes, edges: list[int], counts: list[int]) -> None:
    """Bins become (lo, hi]; documents stand at the upper edge in the figures, as in the problem."""
    imported = read(raw, "a.csv")
    assert imported.sequence_lengths == {"histogram": {"edges": edges, "counts": counts}}
    assert imported.statistics["tokens"] == 10 * 3 + 50 * 7
    parse_problem(small(**{"workload.sequence_lengths": imported.sequence_lengths}))


def test_summaries_and_buckets_in_json() -> None:
    """A summary by powers of two keeps tokens and maximum; buckets of tokens need an end."""
    summary = {"log2_bins": [0, 32, 64, 128], "count": [2, 0, 3], "tokens_per_bin": [40, 0, 300], "max": 120, "n": 5}
    imported = read(json.dumps({"mine": summary, "other": summary}).encode(), "a.json", column="mine")
    assert counts_of(imported) == {20: 2, 90: 2, 120: 1}
    half_open = {"log2_bins": [0, 32, 64], "count": [2, 3]}
    assert read(json.dumps(half_open).encode(), "a.json").sequence_lengths["histogram"]["edges"] == [0, 31, 63]
    buckets = read(b'{"tokens": {"8k-16k": 1638400.0, "1M+": 2097152}}', "a.json", max_tokens=1 << 21)
    assert buckets.sequence_lengths["histogram"] == {
        "edges": [8191, 16384, 1048575, 1 << 21],
        "counts": [100, 0, 1],
    }


def test_text_is_measured_in_characters_only_when_that_is_stated() -> None:
    """And never repeated."""
    rows = [{"text": "secret words"}, {"messages": [{"role": "user", "content": "secret"}, {"role": "a", "content": "more"}]}]
    raw = "\n".join(map(json.dumps, rows)).encode()
    imported = read(raw, "a.jsonl", characters_per_token=4.0)
    assert counts_of(imported) == {3: 2}
    assert "4 characters a token" in imported.warnings[0]
    assert "secret" not in repr(imported)


def test_columns_by_name() -> None:
    """`column` chooses among several."""
    assert counts_of(read(b"a,length\n7,1\n9,2\n", "a.csv", column="a")) == {7: 1, 9: 1}
    assert counts_of(read(b'{"length": 1, "mine": [4, 4]}\n', "a.jsonl", column="mine")) == {2: 1}


def test_several_files_are_added() -> None:
    """Also when one is a histogram."""
    parts = [("a.txt", io.BytesIO(b"5\n6\n")), ("b.csv", io.BytesIO(b"0,10,3\n10,50,7\n"))]
    imported = import_lengths(parts)
    assert counts_of(imported) == {5: 1, 6: 1, 10: 3, 50: 7}
    assert imported.formats == ("lines", "csv")
    assert "upper edges" in imported.warnings[0]


def test_figures() -> None:
    """Moments and quantiles of a sample, against numpy."""
    sample = np.random.default_rng(0).lognormal(6, 1.2, 5000).astype(np.int64) + 1
    imported = read("\n".join(map(str, sample)).encode(), "a.txt", max_tokens=4096)
    figures, limit = imported.statistics, imported.limit
    assert figures["documents"] == 5000
    assert figures["tokens"] == int(sample.sum())
    assert figures["mean_tokens"] == pytest.approx(sample.mean())
    assert figures["standard_deviation_tokens"] == pytest.approx(sample.std())
    assert figures["mean_square_tokens"] == pytest.approx((sample.astype(float) ** 2).mean())
    centred = sample - sample.mean()
    assert figures["skewness"] == pytest.approx((centred**3).mean() / sample.std() ** 3)
    for name, value in figures["quantiles_tokens"].items():
        assert value == np.quantile(sample, float(name), method="inverted_cdf")
    cut = np.minimum(sample, 4096)
    assert limit["documents_above_fraction"] == pytest.approx((sample > 4096).mean())
    assert limit["tokens_in_documents_above_fraction"] == pytest.approx(sample[sample > 4096].sum() / sample.sum())
    assert limit["tokens_cut_fraction"] == pytest.approx(1 - cut.sum() / sample.sum())
    assert limit["padded_efficiency"] == pytest.approx(cut.mean() / 4096)
    assert limit["packed_efficiency"] == pytest.approx(cut.sum() / (naive_packs(cut.tolist(), 4096) * 4096))
    assert imported.truncate


def naive_packs(lengths: list[int], pack_tokens: int) -> int:
    """First-fit decreasing, one sequence at a time."""
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        at = next((i for i, room in enumerate(free) if room >= length), None)
        if at is None:
            free.append(pack_tokens - length)
        else:
            free[at] -= length
    return len(free)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=12, unique_by=lambda row: row[0]))
def test_packing_by_counts_is_first_fit_decreasing(rows: list[tuple[int, int]]) -> None:
    """The same number of packs as placing the sequences one at a time."""
    lengths, counts = np.array(sorted(rows), dtype=np.int64).T
    packs, error = first_fit_decreasing(lengths, counts, 40)
    assert packs == naive_packs(np.repeat(lengths, counts).tolist(), 40)
    assert error == 0.0


def test_too_many_distinct_lengths_are_merged_upward_with_a_bounded_error() -> None:
    """No length becomes shorter, none crosses the limit, documents stay."""
    lengths = np.arange(1, 200_001, dtype=np.int64)
    counts = np.ones_like(lengths)
    kept, numbers, error = merged(lengths, counts, 65536, cut_tokens=100_001)
    assert len(kept) <= 65536
    assert numbers.sum() == len(lengths)
    assert 0 < error < 2**-13
    assert 100_001 in kept
    imported = read("\n".join(map(str, lengths)).encode(), "a.txt", max_tokens=100_001)
    assert imported.max_relative_error == pytest.approx(error)
    assert imported.statistics["tokens"] == int(lengths.sum())
    problem = small(**{"workload.sequence_lengths": imported.sequence_lengths, "workload.max_sequence_length": 100_001})
    parse_problem({**problem, "workload": {**problem["workload"], "truncate": True}})


def test_very_long_lengths_keep_the_memory_bounded() -> None:
    """Above 2^20 tokens lengths are rounded up to 13 digits, never above the limit."""
    table = LengthTable(cut_tokens=1_500_001)
    table.add(np.arange(1_500_000, 1_600_000, dtype=np.int64))
    lengths, counts = table.rows()
    assert len(lengths) < 800
    assert counts.sum() == 100_000
    assert 1_500_001 in lengths
    assert counts[lengths <= 1_500_001].sum() == 2
    assert lengths[-1] == 1_599_999


def test_parquet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Integer, list and text columns; with pyarrow only."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    table = arrow.table({"num_tokens": LENGTHS, "ids": [[1] * n for n in LENGTHS], "text": ["x" * n for n in LENGTHS]})
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    raw = path.read_bytes()
    assert counts_of(read(raw, "a.parquet")) == COUNTS
    assert counts_of(read(raw, "a.parquet", column="ids")) == COUNTS
    assert counts_of(read(raw, "a.parquet", column="text", characters_per_token=1.0)) == COUNTS


def test_parquet_without_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    from solver import InvalidProblem

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(lengths_parquet.importlib, "import_module", missing)
    with pytest.raises(InvalidProblem, match=r"\[parquet\]") as caught:
        read(b"PAR1....", "a.parquet")
    assert caught.value.errors[0].code == "not_supported"


@needs_samples
def test_shared_samples_agree_with_their_summaries() -> None:
    """n, tokens, extremes, sum of squares and percentiles of every sample that was kept whole."""
    summaries = json.loads((SHARED / "histograms.json").read_text())
    whole = {name: entry for name, entry in summaries.items() if entry["kept"] == entry["n"]}
    assert len(whole) >= 8
    for entry in whole.values():
        with (SHARED / entry["file"]).open("rb") as stream:
            figures = import_lengths([(entry["file"], stream)]).statistics
        assert (figures["documents"], figures["tokens"]) == (entry["n"], entry["tokens"])
        assert (figures["min_tokens"], figures["max_tokens"]) == (entry["min"], entry["max"])
        assert figures["mean_square_tokens"] * entry["n"] == pytest.approx(entry["sum_sq"])


@needs_samples
def test_other_shared_files_are_read() -> None:
    """The summaries by name, the closed bins, the buckets of tokens."""
    with (SHARED / "histograms.json").open("rb") as stream:
        imported = import_lengths([("histograms.json", stream)], Wish(column="flexsp_wikipedia"))
    assert imported.statistics["documents"] == 1_000_000
    assert imported.statistics["max_tokens"] == 1_823_777
    assert imported.statistics["tokens"] == pytest.approx(1_013_648_780, rel=1e-3)
    with (SHARED / "magi_doc_length_distribution.csv").open("rb") as stream:
        assert import_lengths([("magi.csv", stream)]).sequence_lengths["histogram"]["edges"][-1] == 196_608
    with (SHARED / "longmino_bucket_tokens.json").open("rb") as stream:
        longmino = import_lengths([("longmino.json", stream)], Wish(max_tokens=1 << 21))
    assert longmino.statistics["tokens"] == pytest.approx(6.4117e11, rel=1e-3)
