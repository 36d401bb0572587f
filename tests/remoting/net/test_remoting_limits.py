"""What a server holds for all its clients, and what becomes of those that hold too much."""

import gc
import logging
import os
import resource
import socket
import weakref
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from remoting.net.address import Address, parse_address
from remoting.net.client import RemotingClient
from remoting.net.connection import Connection, ConnectionLimits
from remoting.net.descriptors import raise_descriptor_limit
from remoting.net.errors import PeerDoesNotRead, ServerOutOfRoom, TooFewDescriptors
from remoting.net.held_bytes import HeldBytes
from remoting.net.server import ServerLimits, serve
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.frame import FrameDecoder, encode_command
from tests.open_connections import descriptors_limited_to
from tests.remoting.net.recording_server import (
    ECHO,
    SILENT,
    Recorder,
    raw_stream,
    read_until_closed,
    start,
    until,
)

PULL, PULL_BYTES = 11, 256 * 1024
PEER = Address("192.0.2.1", 1)


class Puller(Recorder):
    """Answers pulls with as much as one pull may bring."""

    def __init__(self) -> None:
        super().__init__()
        self.table.add(PULL, lambda _connection, c: c.reply(body=bytes(PULL_BYTES)))


def pulls(count: int) -> bytes:
    return b"".join([encode_command(Command(PULL, opaque=number)) for number in range(count)])


async def ask_over(stream: trio.SocketStream, frames: bytes, count: int) -> list[Command]:
    """Send all at once and read as fast as it comes."""
    replies: list[Command] = []
    decoder = FrameDecoder()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, frames)
        while len(replies) < count:
            data = await stream.receive_some(1 << 20)
            assert data, "the connection was cut off"
            replies += decoder.feed(bytes(data))
    return replies


async def test_a_client_that_pipelines_pulls_and_reads_at_full_speed_gets_every_answer(
    nursery: trio.Nursery,
) -> None:
    handler = Puller()
    stream = await raw_stream(await start(nursery, handler))
    replies = await ask_over(stream, pulls(300), 300)
    assert [reply.opaque for reply in replies] == list(range(300))
    assert handler.closed == []
    await stream.aclose()


async def test_a_client_that_does_not_read_is_closed_after_15_seconds(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Puller()
    async with trio.open_nursery() as nursery:
        address = await start(nursery, handler)
        stream = await raw_stream(address)
        await stream.send_all(pulls(100))
        await until(lambda: bool(handler.opened) and handler.opened[0].unsent_bytes > PULL_BYTES)
        for _ in range(1000):
            await trio.lowlevel.checkpoint()
        for _ in range(29):
            mock_clock.jump(0.5)
            await trio.testing.wait_all_tasks_blocked()
        assert handler.closed == []
        mock_clock.jump(1)
        await until(lambda: len(handler.closed) == 1)
        assert isinstance(handler.closed[0].close_error, PeerDoesNotRead)
        await stream.aclose()
        nursery.cancel_scope.cancel()
    lines = [r.message for r in caplog.records if "took nothing of" in r.message]
    assert len(lines) == 1


async def test_a_peer_that_takes_pieces_slowly_is_reading(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    connection = Connection(PEER, ConnectionLimits())
    nursery.start_soon(connection.run, ours, lambda _connection, commands: len(commands))
    connection.send(Command(1, {}, bytes(1 << 20)))
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(10)
    assert connection.unread_s(trio.current_time()) == 10
    await theirs.receive_some(1 << 20)
    await trio.testing.wait_all_tasks_blocked()
    assert connection.unsent_bytes > 0
    assert connection.unread_s(trio.current_time()) == 0


async def test_half_frames_are_bounded_over_all_connections(nursery: trio.Nursery) -> None:
    handler = Recorder()
    address = await start(nursery, handler, ServerLimits(max_held_bytes=1 << 20))
    frame = encode_command(Command(ECHO, {}, bytes(400_000)))
    streams = []
    for number in range(5):
        streams.append(await raw_stream(address))
        await until(lambda number=number: len(handler.opened) == number + 1)  # type: ignore[misc]
        half = streams[-1]
        await half.send_all(frame[:300_000])
        if number < 3:
            held = handler.opened[number]
            await until(lambda held=held: held.held_bytes == 300_000)  # type: ignore[misc]
    # The fourth is over the limit: the first began the longest ago, then the second.
    await until(lambda: len(handler.closed) >= 2)
    assert handler.closed[:2] == handler.opened[:2]
    assert all(isinstance(one.close_error, ServerOutOfRoom) for one in handler.closed)
    assert sum(one.held_bytes for one in handler.opened if not one.is_closed) <= 1 << 20
    await streams[4].send_all(frame[300_000:])
    reply = FrameDecoder()
    while not reply.feed(bytes(await streams[4].receive_some(1 << 20))):
        pass
    for stream in streams:
        await stream.aclose()


async def test_answers_that_are_not_read_are_bounded_over_all_connections(
    nursery: trio.Nursery,
) -> None:
    limit_bytes = 8 * 1024 * 1024
    handler = Puller()
    address = await start(nursery, handler, ServerLimits(max_held_bytes=limit_bytes))
    client = RemotingClient(nursery)
    hogs = []
    for _ in range(8):
        hogs.append(await raw_stream(address))
        await hogs[-1].send_all(pulls(64))
        assert len((await client.request(address, Command(PULL))).body) == PULL_BYTES
        assert sum(one.held_bytes for one in handler.opened) <= limit_bytes + 64 * PULL_BYTES
    assert all(isinstance(one.close_error, ServerOutOfRoom) for one in handler.closed)
    assert (await client.request(address, Command(ECHO))).code == 0
    for stream in hogs:
        await trio.aclose_forcefully(stream)


async def test_requests_that_are_kept_pause_reading_until_they_are_answered(
    nursery: trio.Nursery,
) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    held = HeldBytes(10_000_000, lambda _count: None)
    connection = Connection(PEER, ConnectionLimits(pause_unsent_bytes=5_000), held=held)
    arrived: list[Command] = []

    def keep(_connection: Connection, commands: Sequence[Command]) -> int:
        arrived.extend(commands)
        return len(commands)

    def request(opaque: int, flag: int = 0) -> bytes:
        return encode_command(Command(1, body=bytes(3_000), opaque=opaque, flag=flag))

    size = len(request(1))
    nursery.start_soon(connection.run, ours, keep)
    # A oneway request is kept by nobody, and half of a frame is counted apart.
    nursery.start_soon(theirs.send_all, request(0, ONEWAY_FLAG) + request(1))
    await trio.testing.wait_all_tasks_blocked()
    assert (len(arrived), held.total_bytes) == (2, size)
    nursery.start_soon(theirs.send_all, request(2)[:1_000])
    await trio.testing.wait_all_tasks_blocked()
    assert held.total_bytes == size + 1_000
    nursery.start_soon(theirs.send_all, request(2)[1_000:])
    await trio.testing.wait_all_tasks_blocked()
    assert (len(arrived), held.total_bytes) == (3, 2 * size)
    nursery.start_soon(theirs.send_all, request(3))
    await trio.testing.wait_all_tasks_blocked()
    assert len(arrived) == 3  # no more is read while so much is kept
    connection.send(arrived[1].reply())
    answer = await theirs.receive_some()
    await trio.testing.wait_all_tasks_blocked()
    assert answer
    assert (len(arrived), held.total_bytes) == (4, 2 * size)
    connection.send(arrived[1].reply())  # it was answered before
    connection.close("over")
    assert held.total_bytes == 0
    connection.send(arrived[2].reply())
    assert held.total_bytes == 0


async def test_requests_that_are_set_aside_do_not_keep_others_from_being_read(
    nursery: trio.Nursery,
) -> None:
    """A proxy's fifty thousand pops that wait have twenty megabytes, and it sends messages, too."""
    ours, theirs = trio.testing.memory_stream_pair()
    held = HeldBytes(10_000_000, lambda _count: None)
    connection = Connection(PEER, ConnectionLimits(pause_unsent_bytes=5_000), held=held)
    arrived: list[Command] = []

    def wait(connection: Connection, commands: Sequence[Command]) -> int:
        for command in commands:
            arrived.append(command)
            if command.code == 1:
                connection.set_aside(command)
                connection.set_aside(command)  # counts once
        return len(commands)

    nursery.start_soon(connection.run, ours, wait)
    for opaque in range(20):
        frame = encode_command(Command(1 if opaque < 18 else 2, body=bytes(3_000), opaque=opaque))
        await theirs.send_all(frame)
        await trio.testing.wait_all_tasks_blocked()
    assert len(arrived) == 20
    kept = held.total_bytes
    assert 6_000 < kept < 7_000  # two that are being answered
    connection.send(arrived[0].reply())
    await trio.testing.wait_all_tasks_blocked()
    connection.send(arrived[18].reply())
    await trio.testing.wait_all_tasks_blocked()
    assert 3_000 < held.total_bytes < 4_000
    connection.close("over")
    assert held.total_bytes == 0


async def test_late_answers_are_made_as_fast_as_the_peer_reads(nursery: trio.Nursery) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    connection = Connection(PEER, ConnectionLimits(pause_unsent_bytes=5_000))
    nursery.start_soon(connection.run, ours, lambda _connection, commands: len(commands))
    made: list[int] = []

    def answer(number: int) -> None:
        made.append(number)
        connection.send_frame(bytes(4_000))

    def fail() -> None:
        raise ZeroDivisionError

    for number in range(9):
        connection.when_taken(lambda number=number: answer(number))  # type: ignore[misc]
    assert made == [0, 1]
    await theirs.receive_some(1 << 20)
    await trio.testing.wait_all_tasks_blocked()
    assert made == [0, 1, 2, 3]
    connection.when_taken(fail)
    while len(made) < 9:
        await theirs.receive_some(1 << 20)
        await trio.testing.wait_all_tasks_blocked()
    assert not connection.is_closed


async def test_above_half_of_the_limit_connections_pause_sooner(nursery: trio.Nursery) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    held = HeldBytes(8_000_000, lambda _count: None)
    connection = Connection(PEER, ConnectionLimits(), held=held)
    arrived: list[int] = []

    def answer(connection: Connection, commands: Sequence[Command]) -> int:
        arrived.append(1)
        connection.send_frame(bytes(300_000))
        return len(commands)

    nursery.start_soon(connection.run, ours, answer)
    for tight, expected in ((0, 2), (5_000_000, 2)):
        held.add(tight)
        for _ in range(2):
            with trio.move_on_after(0.05):
                await theirs.send_all(encode_command(Command(1)))
            await trio.testing.wait_all_tasks_blocked()
        assert len(arrived) == expected


def test_what_is_freed_leaves_room_for_more() -> None:
    asked: list[int] = []
    held = HeldBytes(1_600, asked.append)
    held.add(1_600)
    assert asked == []
    held.add(1)
    assert asked == [101]


def test_the_limit_of_connections_is_lowered_to_the_descriptors_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with descriptors_limited_to(1024):
        limits = ServerLimits(spare_descriptors=100).within_descriptors()
        assert limits.max_connections == 924
        assert limits.within_descriptors() == limits
    assert [r.message for r in caplog.records] == [
        "at most 924 connections are taken: the process may open 1024 files and keeps 100 for "
        "itself; raise the limit with ulimit -n"
    ]


def test_a_limit_that_was_asked_for_and_cannot_be_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with descriptors_limited_to(1024):
        assert ServerLimits(max_connections=900).within_descriptors().max_connections == 768
    assert "at most 768 connections are taken instead of 900: " in caplog.text


def test_a_server_takes_as_many_connections_as_there_are_descriptors_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with descriptors_limited_to(10_000):
        assert ServerLimits(spare_descriptors=100).within_descriptors().max_connections == 9_900
        few = ServerLimits(max_connections=20).within_descriptors()
        assert few.max_connections == 20
    assert not caplog.records


def test_the_soft_limit_of_files_is_raised_to_the_hard_one() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with descriptors_limited_to(1024):
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


async def test_a_server_without_descriptors_for_connections_does_not_start() -> None:
    with (
        descriptors_limited_to(250),
        pytest.RaisesGroup(TooFewDescriptors, allow_unwrapped=True, flatten_subgroups=True),
    ):
        await serve("127.0.0.1", 0, Recorder())


async def test_running_out_of_descriptors_is_survived_with_one_line(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder()
    address = await start(nursery, handler)
    waiting = [socket.socket() for _ in range(3)]
    used = os.dup(waiting[0].fileno())
    os.close(used)
    caplog.set_level(logging.WARNING)
    with descriptors_limited_to(used):
        for one in waiting:
            one.connect(tuple(parse_address(address)))
        with trio.fail_after(10):
            while not caplog.records:
                await trio.lowlevel.checkpoint()
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        assert handler.opened == []
    with trio.fail_after(10):
        while len(handler.opened) < 3:
            await trio.lowlevel.checkpoint()
    assert len(caplog.records) == 1
    assert "no connection can be accepted" in caplog.records[0].message
    for one in waiting:
        one.close()


class Watcher(Recorder):
    """Remembers weakly which connections there were."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[weakref.ref[Connection]] = []

    def on_open(self, connection: Connection) -> None:
        pass

    def on_close(self, connection: Connection) -> None:
        self.gone.append(weakref.ref(connection))


@pytest.mark.parametrize(
    "end",
    [
        b"\x00\x00\x00\x10\x00\x00\x00\x0c{not a header",
        b"\x00\x00\x00\x10\x00\x00\x00\x0c{'': 0, 1: 2}",
        b"\x00\x00\x00\x08\x01\x00\x00\x04abcd",
        b"\x00\x00\x00\x08\x09\x00\x00\x04abcd",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"",
    ],
    ids=["no JSON", "no JSON keys", "no binary header", "unknown type", "too long", "no fault"],
)
async def test_a_closed_connection_and_what_it_read_are_freed_at_once(
    nursery: trio.Nursery, end: bytes
) -> None:
    handler = Watcher()
    address = await start(nursery, handler)
    before = gc.isenabled()
    gc.disable()  # it would free them as well, but only when many more objects were made
    try:
        async with await raw_stream(address) as stream:
            await stream.send_all(encode_command(Command(SILENT, body=bytes(1 << 20))) + end)
            await stream.send_eof()
            assert await read_until_closed(stream) == b""
        await until(lambda: [one() for one in handler.gone] == [None])
    finally:
        if before:
            gc.enable()
