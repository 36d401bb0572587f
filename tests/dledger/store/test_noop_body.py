"""What a leader's no-op says."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.store.noop_body import (
    BEFORE_BIRTHS,
    BIRTH_BYTES,
    NoopBody,
    birth_of,
    decode_noop_body,
    encode_noop_body,
)

BIRTHS = st.one_of(st.just(b""), st.binary(min_size=BIRTH_BYTES, max_size=BIRTH_BYTES))
BODIES = st.builds(NoopBody, st.text(min_size=1, max_size=64), st.integers(0, 2**63 - 1), BIRTHS)


@given(BODIES)
def test_leader_time_and_birth_are_read_back(body: NoopBody) -> None:
    assert decode_noop_body(encode_noop_body(body)) == body
    assert decode_noop_body(memoryview(encode_noop_body(body))) == body
    assert birth_of(encode_noop_body(body)) == (body.birth or BEFORE_BIRTHS)


def test_an_empty_no_op_says_nothing_and_began_before_births() -> None:
    assert decode_noop_body(b"") is None
    assert birth_of(b"") == BEFORE_BIRTHS


def test_fields_of_a_later_version_are_passed_over() -> None:
    later = msgpack.packb([2, "n0", 7, b"", {"new": 1}])
    assert decode_noop_body(later) == NoopBody("n0", 7)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_passed_over(content: bytes) -> None:
    decode_noop_body(content)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        7,
        {},
        [1, "n0", 7],
        [0, "n0", 7, b""],
        [True, "n0", 7, b""],
        [1, "", 7, b""],
        [1, b"n0", 7, b""],
        [1, "n" * 65, 7, b""],
        [1, "n0", -1, b""],
        [1, "n0", 1.5, b""],
        [1, "n0", 2**63, b""],
        [1, "n0", 7, "text of 16 chars"],
        [1, "n0", 7, b"short"],
        [1, "n0", 7, None],
    ],
)
def test_a_body_of_another_shape_says_nothing(fields: object) -> None:
    assert decode_noop_body(msgpack.packb(fields)) is None
