"""Text to document: YAML 1.2 and JSON, and what neither may smuggle in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import InvalidProblem
from solver.problem import load_document


def refused(text: str | bytes, media: Any) -> set[tuple[str, str]]:
    """(pointer, code) of each error."""
    with pytest.raises(InvalidProblem) as caught:
        load_document(text, media)
    return {(error.pointer, error.code) for error in caught.value.errors}


def outcome(text: str, media: Any) -> dict[str, Any] | InvalidProblem:
    """The document, or why not."""
    try:
        return load_document(text, media)
    except InvalidProblem as error:
        return error


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5.0e+10", 5.0e10),
        ("2.0e+12", 2.0e12),
        ("1e-5", 1e-5),
        ("+1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("-3", -3),
        ("~", None),
        ("", None),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("off", "off"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("[1, 2.0, {b: c}]", [1, 2.0, {"b": "c"}]),
    ],
)
def test_yaml_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    """Numbers and words of YAML 1.2, nothing of 1.1."""
    found = load_document(f"a: {text}\n", "yaml")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "pointer", "code"),
    [
        ("a: 1\na: 2", "/a", "duplicate_key"),
        ("x: [{b: 1}, {c: 1, c: 2}]", "/x/1/c", "duplicate_key"),
        ("x: [1, .nan]", "/x/1", "invalid"),
        ("a: -.inf", "/a", "invalid"),
        ("a: 1e999", "/a", "invalid"),
        ("a: &x [1]\nb: *x", "/a", "invalid"),
        ("a: !!python/object:os.system x", "/a", "invalid"),
        ("a: !thing {b: 1}", "/a", "invalid"),
        ("? [1, 2]\n: 3", "", "invalid"),
        ("b: {1: 2}", "/b", "invalid"),
        ("a: [[[", "", "invalid"),
        ("- 1", "", "wrong_type"),
        ("", "", "wrong_type"),
        ("--- {a: 1}\n--- {b: 2}", "", "invalid"),
        ("a: \x00", "", "invalid"),
        ('a: "\\ud800"', "/a", "invalid"),
        ("[" * 100_000, "/0/0/0/0", "too_large"),
        ("a: " + "x" * (3 << 20), "", "too_large"),
    ],
)
def test_yaml_refusals(text: str, pointer: str, code: str) -> None:
    """Each with the place where it stands."""
    assert refused(text, "yaml") == {(pointer, code)}


@pytest.mark.parametrize(
    ("text", "pointer", "code"),
    [
        ('{"a": 1, "a": 2}', "/a", "duplicate_key"),
        ('{"x": [{"k": 1}, {"k": 1, "k": 2}]}', "/x/1/k", "duplicate_key"),
        ('{"a": NaN}', "", "invalid"),
        ('{"a": -Infinity}', "", "invalid"),
        ('{"a": 1e999}', "/a", "invalid"),
        ('{"a": "\\ud800"}', "/a", "invalid"),
        ('{"\\ud800": 1}', "", "invalid"),
        ("[" * 200_000, "", "too_large"),
        ('{"a": ' + "9" * 5000 + "}", "", "invalid"),
        ("{", "", "invalid"),
        ("[]", "", "wrong_type"),
        (b"\xff{}", "", "invalid"),
    ],
)
def test_json_refusals(text: str | bytes, pointer: str, code: str) -> None:
    """Never a crash, always a typed error."""
    assert refused(text, "json") == {(pointer, code)}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4))
def test_json_round_trip(document: dict[str, Any]) -> None:
    """What json writes is read back."""
    assert load_document(json.dumps(document), "json") == document


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the readers crash."""
    for media in ("json", "yaml"):
        assert isinstance(outcome(text, media), dict | InvalidProblem)
