"""What comes and goes on a plain socket, without a stream around it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from dledger.network.plain_socket import read_some, write_now

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends that do not block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        yield near, far


async def test_a_reader_waits_for_what_comes_and_takes_all_of_it_up_to_its_limit(
    pair: Pair,
) -> None:
    near, far = pair
    got: list[bytes] = []

    async def read() -> None:
        got.append(await read_some(near.fileno(), 4))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        far.send(b"abcdef")
    assert got == [b"abcd"]
    assert await read_some(near.fileno(), 4) == b"ef"


async def test_the_end_of_a_stream_is_nothing(pair: Pair) -> None:
    near, far = pair
    far.close()
    assert await read_some(near.fileno(), 4) == b""


async def test_a_connection_that_was_reset_is_broken(pair: Pair) -> None:
    near, far = pair
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    with pytest.raises(trio.BrokenResourceError, match="the connection broke"):
        await read_some(near.fileno(), 4)


async def test_a_reader_hears_that_its_stream_is_closed_here(pair: Pair) -> None:
    near, _ = pair
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(near))
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await read_some(stream.socket.fileno(), 4)

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await stream.aclose()


def test_what_a_socket_does_not_take_at_once_is_left(pair: Pair) -> None:
    near, far = pair
    frame = os.urandom(1 << 24)  # more than both ends can hold
    rest = frame
    while True:
        written = write_now(near.fileno(), rest)
        if not written:
            break
        rest = rest[written:]
    assert 0 < len(rest) < len(frame)
    far.setblocking(True)
    taken = b""
    while len(taken) < len(frame) - len(rest):
        taken += far.recv(1 << 16)
    assert taken + rest == frame


def test_an_error_is_left_to_whoever_writes_next() -> None:
    assert write_now(-1, b"a frame") == 0
