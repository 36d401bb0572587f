"""Blocks of headers: our decoder beside that of hpack, and the encoding of our answers."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.http2.answer_blocks import GRPC_HEADERS, http_refusal, trailers, trailers_only
from proxy.http2.errors import ConnectionFault
from proxy.http2.field_decoder import FieldDecoder
from proxy.http2.status import Status
from tests.examples import examples

NAMES = st.sampled_from(["a", ":path", "te", "x-mq-client-id", "content-type", "n" * 200])
VALUES = st.one_of(st.text("abcäz-/ 09", max_size=40), st.sampled_from(["trailers", "v" * 3000]))
LISTS = st.lists(st.tuples(NAMES, VALUES), max_size=10)


@given(st.lists(st.tuples(LISTS, st.booleans(), st.integers(0, 4096)), max_size=6))
@settings(max_examples=examples(100))
def test_blocks_of_one_connection_are_decoded_as_by_hpack(
    blocks: list[tuple[list[tuple[str, str]], bool, int]],
) -> None:
    encoder, decoder = Encoder(), FieldDecoder(1 << 20)
    for fields, is_huffman, table_bytes in blocks:
        encoder.header_table_size = table_bytes
        block = encoder.encode(fields, huffman=is_huffman)
        expected = tuple([(name.encode(), value.encode()) for name, value in fields])
        assert decoder.decode(block) == expected


@given(st.lists(st.binary(max_size=60), max_size=4))
@settings(max_examples=examples(300))
def test_any_bytes_are_decoded_or_refused_as_by_hpack(blocks: list[bytes]) -> None:
    theirs, ours = Decoder(1 << 20), FieldDecoder(1 << 20)
    theirs.max_allowed_table_size = 4096
    for block in blocks:
        try:
            expected = tuple([tuple(field) for field in theirs.decode(block, raw=True)])
        except HPACKError:
            with pytest.raises(ConnectionFault):
                ours.decode(block)
            return
        assert ours.decode(block) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (GRPC_HEADERS, [(":status", "200"), ("content-type", "application/grpc")]),
        (trailers(Status.OK), [("grpc-status", "0")]),
        (trailers(Status.NOT_FOUND, "none"), [("grpc-status", "5"), ("grpc-message", "none")]),
        (
            trailers(Status.INTERNAL, "100 % ä\n"),
            [("grpc-status", "13"), ("grpc-message", "100 %25 %C3%A4%0A")],
        ),
        (
            trailers_only(Status.UNIMPLEMENTED, ""),
            [
                (":status", "200"),
                ("content-type", "application/grpc"),
                ("grpc-accept-encoding", "identity,gzip"),
                ("grpc-status", "12"),
            ],
        ),
        (
            http_refusal(415, 1234),
            [
                (":status", "415"),
                ("content-type", "text/plain; charset=utf-8"),
                ("content-length", "1234"),
            ],
        ),
    ],
)
def test_blocks_of_answers_are_decoded_by_hpack(
    block: bytes, expected: list[tuple[str, str]]
) -> None:
    assert [(str(name), str(value)) for name, value in Decoder().decode(block)] == expected


def test_a_long_message_of_a_status_is_cut() -> None:
    (_, (_, value)) = Decoder().decode(trailers(Status.INTERNAL, "€" * 5000))
    assert str(value) == "%E2%82%AC" * 1000
