"""JSON headers: what most clients write is read at once, and anything else says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.wire.codes import LanguageCode
from remoting.wire.command import Command
from remoting.wire.errors import FrameMalformed
from remoting.wire.header_json import decode_json_header, encode_json_header

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=12)
ANY_TEXT = st.text(st.characters(), max_size=12)  # halves of surrogate pairs, too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
headers = st.fixed_dictionaries(
    {"code": INT32},
    optional={
        "opaque": INT32,
        "flag": INT32,
        "version": INT32,
        "language": st.sampled_from([*[code.name for code in LanguageCode], 3, 77, "KLINGON"]),
        "remark": st.none() | TEXT,
        "extFields": st.none() | st.dictionaries(TEXT, TEXT | JSON, max_size=4),
        "somethingElse": JSON,
    },
)


def written(header: dict[str, Any], **how: Any) -> bytes:
    return json.dumps(header, **how).encode()


@given(headers, st.booleans(), st.sampled_from(["", "\n", "  \n"]))
def test_a_header_is_read_the_same_whichever_way_it_is_read(
    header: dict[str, Any], ascii_only: bool, end: str
) -> None:
    read = decode_json_header(written(header, ensure_ascii=ascii_only) + end.encode(), b"body")
    # A control character that is not escaped is no JSON, and some clients write it.
    loose = written({**header, "padding": "x"}, ensure_ascii=ascii_only)
    at = loose.rindex(b'"x"') + 1
    assert decode_json_header(loose[:at] + b"\x01" + loose[at + 1 :], b"body") == read
    assert (read.code, read.opaque, read.flag, read.body) == (
        header["code"],
        header.get("opaque", 0),
        header.get("flag", 0),
        b"body",
    )
    expected = header.get("extFields") or {}
    assert set(read.fields) == {name for name, value in expected.items() if value is not None}
    for name, value in expected.items():
        if isinstance(value, str):
            assert read.fields[name] == value


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{}",
        b'{"code":"1"}',
        b'{"code":1.0}',
        b'{"code":true}',
        b'{"code":2147483648}',
        b'{"code":1,"flag":null}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1}{}',
        b'{"code":1,"x":' + b"[" * 200_000,
    ],
)
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(FrameMalformed):
        decode_json_header(header, b"")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b'{"code":1,"extFields":{"a":"\xff"}}', "\ufffd"),
        (b'{"code":1,"extFields":{"a":"\\ud800"}}', "\ufffd"),
        (b'{"code":1,"extFields":{"a":"\x01\x02"}}', "\x01\x02"),
        (b'{"code":1,"extFields":{"a":1.50}}', "1.50"),
        (b'{"code":1,"extFields":{"a":7}}', "7"),
        (b'{"code":1,"extFields":{"a":true}}', "true"),
        (b'{"code":1,"extFields":{"a":"x","a":"y"}}', "y"),
    ],
)
def test_fields_that_clients_write_in_their_own_way_are_text(header: bytes, value: str) -> None:
    assert decode_json_header(header, b"").fields == {"a": value}


@given(
    INT32,
    st.dictionaries(TEXT | ANY_TEXT, TEXT | ANY_TEXT, max_size=4),
    INT32,
    st.none() | ANY_TEXT,
    st.sampled_from([*LanguageCode, 77, "KLINGON", "é"]),
)
def test_a_header_is_written_as_ascii_json_with_text_values_in_one_order(
    code: int, fields: dict[str, str], opaque: int, remark: str | None, language: int | str
) -> None:
    command = Command(code, fields, b"", opaque, 1, remark, language)
    header = encode_json_header(command)
    assert header.isascii()
    said = json.loads(header)
    name = language.name if isinstance(language, LanguageCode) else language
    expected = {
        "code": code,
        "extFields": fields,
        "flag": 1,
        "language": name,
        "opaque": opaque,
        "remark": remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if remark is None:
        del expected["remark"]
    assert said == expected
    assert list(said) == list(expected)
    assert header == json.dumps(expected, separators=(",", ":")).encode()
