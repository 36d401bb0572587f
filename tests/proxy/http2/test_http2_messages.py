"""Messages in the body of a request, and what its headers say to gRPC."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.http2.errors import GrpcStatus
from proxy.http2.grpc_request import GrpcRequest, HttpRefusal, grpc_request
from proxy.http2.message_reader import MessageReader
from proxy.http2.request_head import RequestHead
from proxy.http2.status import Status
from tests.examples import examples
from tests.proxy.http2.peer import message

MOST = 1000


def compressed(packed: bytes) -> bytes:
    return struct.pack(">BI", 1, len(packed)) + packed


def refused(reader: MessageReader, sent: bytes) -> Status:
    reader.feed(sent)
    with pytest.raises(GrpcStatus) as refusal:
        reader.take()
    return refusal.value.code


@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
@settings(max_examples=examples(100))
def test_messages_are_the_same_however_they_are_cut(
    bodies: list[bytes], drawn: st.DataObject
) -> None:
    sent = b"".join(map(message, bodies))
    reader, found = MessageReader(MOST), []
    at = 0
    while at < len(sent):
        size = drawn.draw(st.integers(1, 30))
        reader.feed(sent[at : at + size])
        at += size
        while drawn.draw(st.booleans()) and (taken := reader.take()) is not None:
            found.append(taken)
    while (taken := reader.take()) is not None:
        found.append(taken)
    assert found == bodies
    assert reader.held_bytes == 0


def test_a_message_over_the_limit_is_refused_by_its_first_bytes() -> None:
    reader = MessageReader(MOST)
    reader.feed(message(bytes(MOST)))
    assert reader.take() == bytes(MOST)
    assert refused(reader, struct.pack(">BI", 0, MOST + 1)) == Status.RESOURCE_EXHAUSTED


def test_a_message_in_gzip_is_unpacked_up_to_the_limit() -> None:
    reader = MessageReader(MOST, is_gzip=True)
    reader.feed(compressed(gzip.compress(b"hello" * 100)) + message(b"plain"))
    assert reader.take() == b"hello" * 100
    assert reader.take() == b"plain"
    bomb = compressed(gzip.compress(bytes(100_000)))
    assert len(bomb) < MOST
    assert refused(reader, bomb) == Status.RESOURCE_EXHAUSTED


def test_a_compressed_message_that_cannot_be_read_is_refused() -> None:
    packed = gzip.compress(b"hello")
    assert refused(MessageReader(MOST), compressed(packed)) == Status.INTERNAL
    for wrong in (packed[:-4], zlib.compress(b"hello"), b"", b"abc"):
        assert refused(MessageReader(MOST, is_gzip=True), compressed(wrong)) == Status.INTERNAL


def head(*fields: tuple[bytes, bytes], method: bytes = b"POST") -> RequestHead:
    return RequestHead(method, b"/a/B", fields)


GRPC = (b"content-type", b"application/grpc")


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        (b"1H", 3600),
        (b"2M", 120),
        (b"3S", 3),
        (b"4m", 0.004),
        (b"5u", 0.000005),
        (b"6n", 0.000000006),
        (b"0S", 0),
        (b"99999999H", 99999999 * 3600),
    ],
)
def test_a_timeout_is_read_in_each_unit(text: bytes, expected_s: float) -> None:
    request = grpc_request(head(GRPC, (b"grpc-timeout", text)))
    assert isinstance(request, GrpcRequest)
    assert request.timeout_s == pytest.approx(expected_s)


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"1s", b"-1S", b"1.5S", b"123456789S", b" 1S"])
def test_a_timeout_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(GrpcStatus) as refusal:
        grpc_request(head(GRPC, (b"grpc-timeout", text)))
    assert refusal.value.code == Status.INVALID_ARGUMENT


def test_only_requests_of_grpc_are_served() -> None:
    for fine in (b"application/grpc", b"application/grpc+proto", b"application/grpc;a=b"):
        assert grpc_request(head((b"content-type", fine))) == GrpcRequest(None, False)
    for other in (b"application/grpcx", b"application/grpc-web", b"text/html", b""):
        refusal = grpc_request(head((b"content-type", other)))
        assert isinstance(refusal, HttpRefusal)
        assert refusal.code == 415
    assert grpc_request(head())[0] == 415
    assert grpc_request(head(GRPC, method=b"GET"))[0] == 405


def test_encodings_are_known_or_refused() -> None:
    for name, is_gzip in ((b"identity", False), (b"gzip", True)):
        assert grpc_request(head(GRPC, (b"grpc-encoding", name))) == GrpcRequest(None, is_gzip)
    with pytest.raises(GrpcStatus) as refusal:
        grpc_request(head(GRPC, (b"grpc-encoding", b"deflate")))
    assert refusal.value.code == Status.UNIMPLEMENTED
