"""Files that are damaged, lie about themselves or are far too large: a typed refusal, in bounded time and memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import tracemalloc
from pathlib import Path

import pytest

from solver.errors import InvalidProblem
from solver.importers import Wish, import_lengths
from tests.solver.importers.length_files import mmap_idx, npy, plain_idx, read

GOOD = [5, 3, 900, 5, 17]


def refusal(raw: bytes, name: str, **wish: object) -> tuple[str, str]:
    """Code and message of the one refusal."""
    with pytest.raises(InvalidProblem) as caught:
        read(raw, name, **wish)
    (error,) = caught.value.errors
    return error.code, error.message


@pytest.mark.parametrize(
    ("name", "raw", "code", "words"),
    [
        ("a.txt", b"", "missing", "no lengths"),
        ("a.txt", b"\n# nothing\n", "missing", "no lengths"),
        ("a.txt", b"5\n0\n", "out_of_range", "line 2"),
        ("a.txt", b"5\n\n#\n-3\n", "out_of_range", "line 4"),
        ("a.txt", b"5\nNaN\n", "wrong_type", "line 2"),
        ("a.txt", b"5\n1.5\n", "wrong_type", "line 2"),
        ("a.txt", b"5\n7 8\n", "wrong_type", "line 2"),
        ("a.txt", b"5\n99999999999\n", "out_of_range", "line 2"),
        ("a.txt", b"5\n" + b"9" * 1000 + b"\n", "wrong_type", "line 2"),
        ("a.txt", b"5\n" + b"\x00" * 5000, "wrong_type", "line 2"),
        ("a.csv", b"length,count\n5,-1\n", "out_of_range", "line 2"),
        ("a.csv", b"length,count\n5\n", "wrong_type", "line 2"),
        ("a.csv", b"length\n0\n", "out_of_range", "line 2"),
        ("a.csv", b"name,other\n1,2\n", "missing", "no column"),
        ("a.csv", b"0,10,1\n5,20,1\n", "conflict", "overlap"),
        ("a.csv", b"10,5,1\n", "out_of_range", "bin"),
        ("a.csv", b"0,10,0\n", "missing", "empty"),
        ("a.csv", b"length\n\xff\xfe\n", "invalid", "line 2"),
        ("a.csv", b"1,2,3,4\n", "missing", "heading"),
        ("a.jsonl", b'{"length": 5}\n{"length": NaN}\n', "invalid", "line 2"),
        ("a.jsonl", b'{"length": 5}\n\n{"length": -1}\n', "out_of_range", "line 3"),
        ("a.jsonl", b'{"length": 5.5}\n', "wrong_type", "line 1"),
        ("a.jsonl", b'{"length": true}\n', "wrong_type", "line 1"),
        ("a.jsonl", b'{"input_ids": []}\n', "out_of_range", "line 1"),
        ("a.jsonl", b'{"other": 1}\n', "missing", "column"),
        ("a.jsonl", b'{"text": "x"}\n', "missing", "characters_per_token"),
        ("a.jsonl", b'{"length": 5}\n{"length": ', "invalid", "line 2"),
        ("a.jsonl", b"[" * 100_000 + b"\n", "invalid", "line 1"),
        ("a.jsonl", b'{"length": ' + b"9" * 10_000 + b"}\n", "invalid", "line 1"),
        ("a.json", b"[1, 2", "invalid", "JSON"),
        ("a.json", b"[1, null]", "wrong_type", "item 2"),
        ("a.json", b"[[1, 0]]", "out_of_range", "row 1"),
        ("a.json", b'{"a": {"x": 1}, "b": {}}', "missing", "several"),
        ("a.json", b'{"edges": [0, 1], "counts": [1, 2]}', "conflict", "one longer"),
        ("a.json", b'{"tokens": {"1M+": 5}}', "missing", "upper end"),
        ("a.npy", b"\x93NUMPY", "not_supported", "versions"),
        ("a.npy", b"\x93NUMPY\x01\x00\xff\xff{", "invalid", "cut short"),
        ("a.npy", b"\x93NUMPY\x01\x00\x02\x00{(", "invalid", "header"),
        ("a.npy", npy(GOOD, "<i8")[:-1], "invalid", "states 40 bytes"),
        ("a.npy", npy(GOOD, "<i8") + b"x", "invalid", "states 40 bytes"),
        ("a.npy", npy([5, 0], "<i8"), "out_of_range", "value 2"),
        ("a.npy", npy([5, -7], "<i4"), "out_of_range", "value 2"),
        ("a.npy", npy([5, float("nan")], "<f8"), "wrong_type", "value 2"),
        ("a.npy", npy([5, float("inf")], "<f4"), "wrong_type", "value 2"),
        ("a.npy", npy([5, 2**63 + 5], "<u8"), "out_of_range", "value 2"),
        ("a.npy", npy([[1, 2, 3]], "<i8"), "wrong_type", "array must be"),
        ("a.npy", npy(["a"], "<U1"), "wrong_type", "integers or floats"),
        ("a.npy", npy([[5, 0]], "<i8"), "out_of_range", "row 1"),
        ("a.npy", b"not numpy", "invalid", "magic"),
        ("a.idx", b"not an index", "invalid", "magic"),
        ("a.idx", b"MMIDIDX\x00\x01" + b"\x00" * 40, "invalid", "magic"),
        ("a.idx", mmap_idx(GOOD)[:20], "invalid", "header"),
        ("a.idx", mmap_idx(GOOD)[:-1], "invalid", "asks for"),
        ("a.idx", mmap_idx(GOOD) + b"x", "invalid", "asks for"),
        ("a.idx", mmap_idx(GOOD, version=2), "not_supported", "version 1"),
        ("a.idx", mmap_idx(GOOD, version=1 << 56), "not_supported", "byte orders"),
        ("a.idx", mmap_idx(GOOD, code=8, **{}).replace(b"\x08", b"\x63", 1), "invalid", "type code"),
        ("a.idx", mmap_idx(GOOD, sequences=1 << 50), "invalid", "do not agree"),
        ("a.idx", mmap_idx(GOOD, sequences=1 << 30), "invalid", "asks for"),
        ("a.idx", mmap_idx(GOOD, code=4, token_bytes=2), "invalid", "offsets"),
        ("a.idx", mmap_idx([5, 0, 3]), "out_of_range", "sequence 2"),
        ("a.idx", mmap_idx([5, -4, 3]), "out_of_range", "sequence 2"),
        ("a.idx", mmap_idx(GOOD, ends=[2, 2, 5]), "invalid", "boundaries"),
        ("a.idx", mmap_idx(GOOD, ends=[2, 4]), "invalid", "last sequence"),
        ("a.idx", mmap_idx(GOOD, ends=[3, 2, 3, 4, 5]), "invalid", "increase"),
        ("a.txt", b"5\n6\0\n", "wrong_type", "line 2"),
        ("a.idx", plain_idx(GOOD, code=4, element_bytes=2), "invalid", "element size"),
        ("a.idx", plain_idx(GOOD)[:-8], "invalid", "asks for"),
        ("a.parquet", b"not parquet", "invalid", "magic"),
        ("a.txt.gz", gzip.compress(b"5\n" * 100_000)[:-20], "invalid", "damaged"),
        ("a.txt.gz", b"\x1f\x8bgarbage", "invalid", "damaged"),
        ("a.npy.gz", gzip.compress(npy(GOOD, "<i8")), "invalid", "unpack"),
    ],
)
def test_refused_with_the_place(name: str, raw: bytes, code: str, words: str) -> None:
    """Code, and where in the file."""
    found, message = refusal(raw, name)
    assert found == code
    assert words in message


@pytest.mark.parametrize(
    ("wish", "words"),
    [({"max_tokens": 0}, "maximum"), ({"characters_per_token": 0.0}, "characters_per_token"), ({"column": "x"}, "no names")],
)
def test_wishes_are_checked(wish: dict[str, object], words: str) -> None:
    """Before anything is read, or when the file has no such thing."""
    assert words in refusal(b"1,2\n", "a.csv", **wish)[1]


def test_private_text_is_not_repeated() -> None:
    """Whatever is wrong with a line that holds text."""
    for raw in (b'{"text": "my secret"}\n', b'{"text": "my secret\n', b"my secret\n", b'{"other": "my secret"}\n'):
        for name in ("a.jsonl", "a.txt", "a.csv"):
            assert "secret" not in refusal(raw, name)[1]


@pytest.mark.parametrize("name", ["a.txt", "a.npy", "a.idx", "a.jsonl", "a.csv"])
def test_ten_gigabytes_of_nothing(tmp_path: Path, name: str) -> None:
    """A sparse file is refused in bounded memory, whatever its header says."""
    heads = {
        "a.txt": b"5\n",
        "a.npy": npy([1], "<i8")[:-8].replace(b"(1,), }", b"(1250000000,), }")[:128],
        "a.idx": mmap_idx(GOOD, sequences=1 << 29)[:33],
        "a.jsonl": b'{"length": 5}\n',
        "a.csv": b"length\n5\n",
    }
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(heads[name])
        file.truncate(10 * 2**30)
    tracemalloc.start()
    with path.open("rb") as stream, pytest.raises(InvalidProblem):
        import_lengths([(name, stream)])
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 400 * 2**20


@pytest.mark.parametrize("line", [b"5\n", b"5", b'{"length": 5}\n'])
def test_gzip_bomb_stops_at_the_limit(line: bytes) -> None:
    """Few bytes that unpack to very many."""
    bomb = gzip.compress(line * (30 * 2**20 // len(line)), 1)
    with pytest.raises(InvalidProblem) as caught:
        import_lengths([("a.txt.gz" if line.startswith(b"5") else "a.jsonl.gz", io.BytesIO(bomb))], Wish(), 2**22)
    assert caught.value.errors[0].code in ("too_large", "wrong_type")


def test_damaged_bytes_never_end_in_a_traceback() -> None:
    """Good files with random bytes changed, cut or doubled: read, or refused with a code."""
    rng = random.Random(1)
    files = {
        "a.txt": b"5\n3\n900\n5\n17\n",
        "a.csv": b'range,count\n"[0, 10]",3\n"[11, 50]",7\n',
        "a.jsonl": b'{"length": 5}\n{"input_ids": [1, 2]}\n',
        "a.json": json.dumps({"log2_bins": [0, 32, 64], "count": [2, 3], "tokens_per_bin": [9, 99], "max": 60}).encode(),
        "a.npy": npy(GOOD, "<i8"),
        "a.idx": mmap_idx(GOOD, ends=[2, 5]),
        "b.idx": plain_idx(GOOD),
        "a.txt.gz": gzip.compress(b"5\n3\n"),
    }
    outcomes = set()
    for name, good in files.items():
        for _ in range(150):
            raw = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(raw))
                kind = rng.randrange(3)
                if kind == 0:
                    raw[at] = rng.randrange(256)
                elif kind == 1:
                    raw = raw[: max(1, at)]
                else:
                    raw[at:at] = raw[: rng.randrange(1, 9)]
            try:
                read(bytes(raw), name, max_tokens=4096)
                outcomes.add("read")
            except InvalidProblem:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_prose_is_not_a_list_of_columns() -> None:
    """A sentence with a comma in a file of another ending is not shown as the names to choose from."""
    raw = b"This letter is private, and so is all that follows, dear reader of my files.\nYours\n"
    for name, wish in (("a.md", {}), ("a.csv", {"column": "length"})):
        with pytest.raises(InvalidProblem) as caught:
            read(raw, name, **wish)
        assert "private" not in str(caught.value.errors)
    with pytest.raises(InvalidProblem) as caught:
        read(b"name,size (MB),share of all\n1,2,3\n", "a.csv")
    assert caught.value.errors[0].allowed == ("name", "size (MB)", "share of all")


def test_byte_order_mark_is_passed_over() -> None:
    """As Windows editors write it."""
    for raw in (b"\xef\xbb\xbf5\n6\n", b"\xef\xbb\xbf5"):
        assert read(raw, "a.txt").sequence_lengths["counts"][0] == [5, 1]
