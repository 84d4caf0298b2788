"""JSON as bytes: what it writes is what the standard library reads, and the other way round."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmfair.io.files import decode, encode

# Two halves side by side are one character once they are written, so a half stands alone.
TEXTS = st.text() | st.sampled_from(["\ud800", "a\udfff b"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES)
def test_what_is_written_is_what_json_reads(value: Any) -> None:
    line = encode(value)
    assert b"\n" not in line
    assert json.loads(line) == value


@given(VALUES)
def test_what_json_writes_is_read(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        data = text.encode("utf-8", "backslashreplace")
        assert _rounded(decode(data)) == _rounded(value)


def _rounded(value: Any) -> Any:
    """Integers of more than 64 bits come back as the nearest float."""
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(TEXTS)
@example("a\udfffb")
@example("\\ud800")
@example("\x00\x1f\x7f\u2028 ü 日本 😀")
def test_every_text_is_written_as_json_writes_it(text: str) -> None:
    """Keys of answers are made of these bytes, so no other library may write them otherwise."""
    assert encode([text]) == json.dumps([text], ensure_ascii=False).encode("utf-8", "backslashreplace")
    assert decode(encode([text])) == [text]


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000])
def test_what_is_very_deep_is_an_error_and_ends_no_process(text: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        decode(text)


@pytest.mark.parametrize("beside", ["", "\ud800"])
def test_a_moment_is_iso_8601(beside: str) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 60000, UTC)
    assert decode(encode([at, beside])) == ["2026-01-02T03:04:05.060000+00:00", beside]


def test_nan_and_infinity_are_read_and_never_written() -> None:
    assert decode(b"[-Infinity, 1]") == [float("-inf"), 1]
    assert encode([float("nan"), float("-inf")]) == b"[null,null]"


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"\xff", b"nothing"])
def test_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        decode(text)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_bytes_in_another_encoding_are_no_json(encoding: str) -> None:
    with pytest.raises(ValueError):
        decode('{"ä": "\\ud800"}'.encode(encoding))


def test_a_mark_of_utf_8_is_read_over() -> None:
    assert decode('["ä"]'.encode("utf-8-sig")) == ["ä"]


@pytest.mark.parametrize("beside", ["", "\ud800"])
def test_what_has_no_form_is_a_type_error(beside: str) -> None:
    with pytest.raises(TypeError):
        encode([object(), beside])
