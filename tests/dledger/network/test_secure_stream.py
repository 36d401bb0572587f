"""TLS over a stream: what one side sends is what the other receives, whatever the pieces."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.network.secure_stream import SecureStream
from tests.examples import examples

DATA = Path("tests/dledger/data/tls")
RECORD_BYTES = 16_384

Side = Callable[[trio.abc.Stream, ssl.SSLContext, bool], trio.abc.Stream]


def context(server: bool, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    purpose = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
    made = ssl.create_default_context(purpose, cafile=str(DATA / "authority.pem"))
    made.check_hostname = False
    made.maximum_version = version
    if server:
        made.load_cert_chain(DATA / "n0.pem", DATA / "n0-key.pem")
    return made


def ours(stream: trio.abc.Stream, context: ssl.SSLContext, server: bool) -> SecureStream:
    return SecureStream(stream, context, server_side=server)


def of_trio(
    stream: trio.abc.Stream, context: ssl.SSLContext, server: bool
) -> trio.SSLStream[trio.abc.Stream]:
    return trio.SSLStream(stream, context, server_side=server, https_compatible=True)


@asynccontextmanager
async def connected(
    client: Side = ours, server: Side = ours, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> AsyncIterator[tuple[trio.abc.Stream, trio.abc.Stream]]:
    near, far = trio.testing.memory_stream_pair()
    one = client(near, context(False), False)
    other = server(far, context(True, version), True)
    async with one, other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.do_handshake)  # type: ignore[attr-defined]
            nursery.start_soon(other.do_handshake)  # type: ignore[attr-defined]
        yield one, other


async def received(stream: trio.abc.Stream, pieces: list[int]) -> bytes:
    """All that comes until the end, asked for in pieces of these sizes in turn."""
    data = b""
    while True:
        for size in pieces:
            piece = await stream.receive_some(size)
            assert len(piece) <= size
            if not piece:
                return data
            data += piece


PIECES = st.lists(st.sampled_from((1000, RECORD_BYTES, RECORD_BYTES + 1, 100_000)), min_size=1)
SENT = st.lists(
    st.builds(
        lambda size, byte: bytes([byte]) * size,
        st.sampled_from((1, 40, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 600_000)),
        st.integers(0, 255),
    ),
    max_size=6,
)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
@pytest.mark.parametrize(("client", "server"), [(ours, ours), (ours, of_trio), (of_trio, ours)])
@settings(max_examples=examples(60))
@given(SENT, SENT, PIECES)
def test_both_sides_receive_what_the_other_sends(
    client: Side,
    server: Side,
    version: ssl.TLSVersion,
    asked: list[bytes],
    answered: list[bytes],
    pieces: list[int],
) -> None:
    got: dict[str, bytes] = {}

    async def sends(stream: trio.abc.Stream, parts: list[bytes]) -> None:
        for part in parts:
            await stream.send_all(part)
        await stream.send_all(b"END")

    async def receives(stream: trio.abc.Stream, name: str, of: list[bytes]) -> None:
        length = sum(map(len, of)) + 3
        got[name] = b""
        while len(got[name]) < length:
            for size in pieces:
                if len(got[name]) < length:
                    got[name] += await stream.receive_some(min(size, length))

    async def main() -> None:
        async with connected(client, server, version) as (one, other), trio.open_nursery() as both:
            both.start_soon(sends, one, asked)
            both.start_soon(sends, other, answered)
            both.start_soon(receives, one, "answered", answered)
            both.start_soon(receives, other, "asked", asked)

    trio.run(main)
    assert got == {"asked": b"".join(asked) + b"END", "answered": b"".join(answered) + b"END"}


async def test_many_small_records_come_in_one_call() -> None:
    async with connected() as (one, other):
        for _ in range(50):
            await one.send_all(b"a request ")
        assert await other.receive_some() == b"a request " * 50


async def test_a_call_gives_no_more_than_it_was_asked_for_and_the_next_one_the_rest() -> None:
    async with connected() as (one, other):
        await one.send_all(b"abcdef")
        assert [await other.receive_some(4) for _ in range(2)] == [b"abcd", b"ef"]


async def test_receiving_what_has_come_is_a_checkpoint() -> None:
    async with connected() as (one, other):
        await one.send_all(b"ab")
        await other.receive_some(1)
        with trio.testing.assert_checkpoints():
            await other.receive_some(1)


@pytest.mark.parametrize("ends_in_order", [True, False])
async def test_the_end_comes_after_the_data_with_or_without_the_last_message_of_tls(
    ends_in_order: bool,
) -> None:
    async with connected() as (one, other):
        assert isinstance(one, SecureStream)
        await one.send_all(b"the last")
        await (one if ends_in_order else one.transport_stream).aclose()
        assert await received(other, [100]) == b"the last"
        assert await other.receive_some() == b""


async def test_what_came_before_a_broken_record_is_received() -> None:
    async with connected() as (one, other):
        assert isinstance(one, SecureStream)
        await one.send_all(b"right")
        await one.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert await other.receive_some() == b"right"
        for _ in range(2):
            with pytest.raises(trio.BrokenResourceError) as caught:
                await other.receive_some()
            assert isinstance(caught.value.__cause__, ssl.SSLError)


async def test_a_send_that_was_cancelled_breaks_the_connection() -> None:
    near, far = trio.testing.memory_stream_pair()
    one, other = ours(near, context(False), False), ours(far, context(True), True)
    async with one, other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.do_handshake)
            nursery.start_soon(other.do_handshake)
        near.send_stream.send_all_hook = trio.sleep_forever
        with trio.CancelScope() as scope:
            scope.cancel()
            await one.send_all(b"half")
        near.send_stream.send_all_hook = None
        with pytest.raises(trio.BrokenResourceError):
            await one.send_all(b"more")


async def test_a_connection_that_was_closed_here_gives_and_takes_nothing() -> None:
    async with connected() as (one, _other):
        await one.aclose()
        await one.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await one.send_all(b"x")
        with pytest.raises(trio.ClosedResourceError):
            await one.receive_some()


async def test_a_call_that_waits_ends_when_the_connection_is_closed_here() -> None:
    async with connected() as (one, _other), trio.open_nursery() as nursery:

        async def waits() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await one.receive_some()

        nursery.start_soon(waits)
        await trio.testing.wait_all_tasks_blocked()
        await one.aclose()


async def test_the_peer_is_told_why_a_handshake_failed() -> None:
    near, far = trio.testing.memory_stream_pair()
    believing_others = ssl.create_default_context(cafile=str(DATA / "stranger.pem"))
    believing_others.check_hostname = False
    causes: list[str] = []

    async def greets(stream: SecureStream) -> None:
        try:
            await stream.do_handshake()
            await stream.receive_some()
        except trio.BrokenResourceError as error:
            causes.append(str(getattr(error.__cause__, "reason", error)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(greets, ours(near, believing_others, False))
        nursery.start_soon(greets, ours(far, context(True), True))
    assert sorted(causes) == ["CERTIFICATE_VERIFY_FAILED", "TLSV1_ALERT_UNKNOWN_CA"]


@pytest.mark.parametrize("hello", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x40\x00" * 4000])
async def test_a_peer_that_speaks_no_tls_is_refused(hello: bytes) -> None:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.send_all, hello)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(near.aclose)
        with pytest.raises(trio.BrokenResourceError) as caught:
            await ours(far, context(True), True).do_handshake()
    assert isinstance(caught.value.__cause__, ssl.SSLError)
