"""One connection, over streams in memory."""

import os
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from dledger.network.plain_socket import write_now
from remoting.net.address import Address, parse_address, peer_address
from remoting.net.connection import Connection, ConnectionLimits, Receive
from remoting.net.errors import ConnectionClosed, PeerTooSlow, RequestTimedOut, TooManyRequests
from remoting.net.held_bytes import HeldBytes
from remoting.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from remoting.wire.errors import FrameTooLarge, RemotingError
from remoting.wire.frame import MAX_FRAME_BYTES, FrameDecoder, encode_command
from tests.remoting.net.recording_server import (
    ECHO,
    SILENT,
)

PEER = Address("192.0.2.1", 1)


def take_all(_connection: Connection, commands: Sequence[Command]) -> int:
    return len(commands)


async def in_memory(
    nursery: trio.Nursery, limits: ConnectionLimits, receive: Receive = take_all
) -> tuple[Connection, trio.abc.Stream]:
    """A connection whose other end the test holds; its pipe takes nothing until it is read."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    connection = Connection(PEER, limits)
    nursery.start_soon(connection.run, ours, receive)
    await trio.testing.wait_all_tasks_blocked()
    return connection, theirs


async def test_a_request_that_was_never_sent_is_known_not_to_have_happened(
    autojump_clock: trio.testing.MockClock,
) -> None:
    connection = Connection(PEER, ConnectionLimits())
    results: list[Command | RemotingError] = []
    connection.request(Command(ECHO), results.append, 5)
    connection.close("test")
    connection.request(Command(ECHO), results.append, 5)
    for result in results:
        assert isinstance(result, ConnectionClosed)
        assert not result.outcome_unknown
    assert len(results) == 2


@pytest.mark.feature("F53")
async def test_a_peer_that_does_not_read_is_cut_off_at_the_limit_in_bytes(
    nursery: trio.Nursery,
) -> None:
    connection, _theirs = await in_memory(nursery, ConnectionLimits(max_unsent_bytes=10_000))
    frame = encode_command(Command(1, {}, bytes(900)))
    while not connection.is_closed:
        assert connection.unsent_bytes <= 10_000
        connection.send_frame(frame)
    assert isinstance(connection.close_error, PeerTooSlow)
    assert connection.close_error.unsent_bytes > 10_000


async def test_what_is_queued_in_one_turn_leaves_in_one_send(nursery: trio.Nursery) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    for number in range(50):
        connection.send(Command(number))
    data = await theirs.receive_some(1 << 20)
    assert [command.code for command in FrameDecoder().feed(bytes(data))] == list(range(50))
    await trio.testing.wait_all_tasks_blocked()
    assert connection.unsent_bytes == 0


async def plain(
    nursery: trio.Nursery,
    receive: Receive = take_all,
    held: HeldBytes | None = None,
) -> tuple[Connection, trio.SocketStream]:
    """A connection over sockets whose other end the test holds."""
    ours, theirs = trio.socket.socketpair()
    connection = Connection(PEER, ConnectionLimits(), held=held)
    nursery.start_soon(connection.run, trio.SocketStream(ours), receive)
    await trio.testing.wait_all_tasks_blocked()
    return connection, trio.SocketStream(theirs)


def watched_writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written at once, one item for each system call."""
    written: list[bytes] = []

    def write(descriptor: int, frame: bytes) -> int:
        count = write_now(descriptor, frame)
        written.append(frame[:count])
        return count

    monkeypatch.setattr("remoting.net.connection.write_now", write)
    return written


def codes(data: bytes) -> list[int]:
    return [command.code for command in FrameDecoder().feed(data)]


async def test_answers_to_requests_that_came_together_leave_in_one_write(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = watched_writes(monkeypatch)

    def receive(connection: Connection, commands: Sequence[Command]) -> int:
        for command in commands:
            connection.send(command.reply(command.code))
        return len(commands)

    connection, theirs = await plain(nursery, receive)
    await theirs.send_all(b"".join([encode_command(Command(number)) for number in (1, 2, 3)]))
    await trio.testing.wait_all_tasks_blocked()
    assert [codes(data) for data in written] == [[1, 2, 3]]
    assert connection.unsent_bytes == 0
    await theirs.aclose()


async def test_gathered_frames_are_written_once_they_are_as_much_as_one_write_takes(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    def write(_descriptor: int, frame: bytes) -> int:
        written.append(frame)
        return len(frame)

    monkeypatch.setattr("remoting.net.connection.write_now", write)
    connection, theirs = await plain(nursery)
    connection.gather()
    for number in range(7):
        connection.send(Command(number, {}, bytes(60_000)))
    assert [codes(data) for data in written] == [[0, 1, 2, 3, 4]]
    connection.write_gathered()
    assert [codes(data) for data in written] == [[0, 1, 2, 3, 4], [5, 6]]
    assert connection.unsent_bytes == 0
    await theirs.aclose()


async def test_gathered_frames_that_a_full_socket_does_not_take_follow_in_order(
    nursery: trio.Nursery,
) -> None:
    held = HeldBytes(1 << 30, lambda _count: None)
    connection, theirs = await plain(nursery, held=held)
    connection.gather()
    for number in range(40):
        connection.send(Command(number, {}, bytes(300_000)))
    connection.write_gathered()
    assert held.total_bytes == connection.unsent_bytes > 1_000_000
    decoder = FrameDecoder()
    found: list[int] = []
    while len(found) < 40:
        found += [command.code for command in decoder.feed(bytes(await theirs.receive_some()))]
    assert found == list(range(40))
    await trio.testing.wait_all_tasks_blocked()
    assert held.total_bytes == connection.unsent_bytes == 0
    await theirs.aclose()


async def test_gathered_last_words_are_sent_before_the_connection_closes(
    nursery: trio.Nursery,
) -> None:
    connection, theirs = await plain(nursery)
    connection.gather()
    connection.send(Command(7))
    connection.close_when_sent("test")
    assert not connection.is_closed
    connection.write_gathered()
    await trio.testing.wait_all_tasks_blocked()
    assert connection.is_closed
    assert codes(bytes(await theirs.receive_some())) == [7]
    await theirs.aclose()


async def test_a_frame_on_an_idle_plain_connection_leaves_at_once(nursery: trio.Nursery) -> None:
    connection, theirs = await plain(nursery)
    connection.send(Command(7))
    assert connection.unsent_bytes == 0
    # Without a task having run in between.
    (command,) = FrameDecoder().feed(os.read(theirs.socket.fileno(), 1000))
    assert command.code == 7
    await theirs.aclose()


async def test_several_commands_on_an_idle_plain_connection_leave_in_one_write(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, theirs = await plain(nursery)
    written = watched_writes(monkeypatch)
    connection.send_all([Command(1), Command(2, flag=RESPONSE_FLAG | ONEWAY_FLAG), Command(3)])
    assert [codes(data) for data in written] == [[1, 3]]
    await theirs.aclose()


async def test_what_a_full_socket_does_not_take_follows_in_order(nursery: trio.Nursery) -> None:
    connection, theirs = await plain(nursery)
    for number in range(40):
        connection.send(Command(number, {}, bytes(300_000)))
    assert connection.unsent_bytes > 1_000_000
    decoder = FrameDecoder()
    found: list[int] = []
    while len(found) < 40:
        found += [command.code for command in decoder.feed(bytes(await theirs.receive_some()))]
    assert found == list(range(40))
    await trio.testing.wait_all_tasks_blocked()
    assert connection.unsent_bytes == 0
    await theirs.aclose()


async def test_a_closed_plain_connection_writes_nothing_more(nursery: trio.Nursery) -> None:
    connection, theirs = await plain(nursery)
    connection.close("test")
    connection.send(Command(7))
    await trio.testing.wait_all_tasks_blocked()
    connection.send(Command(8))
    assert await theirs.receive_some() == b""
    await theirs.aclose()


async def test_a_peer_that_asks_faster_than_it_reads_is_slowed_down(
    nursery: trio.Nursery,
) -> None:
    limits = ConnectionLimits(max_unsent_bytes=100_000, pause_unsent_bytes=5_000)
    turns: list[int] = []

    def receive(connection: Connection, commands: Sequence[Command]) -> int:
        turns.append(len(commands))
        for command in commands:
            connection.send(command.reply(body=bytes(3_000)))
        return len(commands)

    connection, theirs = await in_memory(nursery, limits, receive)
    frame = encode_command(Command(ECHO))

    async def ask() -> None:
        for _ in range(20):
            await theirs.send_all(frame)

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert 2 <= len(turns) < 10
    assert connection.unsent_bytes < 10_000
    received: list[Command] = []
    decoder = FrameDecoder()
    while len(received) < 20:
        received += decoder.feed(bytes(await theirs.receive_some(1 << 20)))
    assert len(turns) == 20
    assert not connection.is_closed


async def test_a_request_without_reply_times_out_on_time(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    results: list[Command | RemotingError] = []
    opaque = connection.request(Command(SILENT), results.append, 3.0)
    connection.expire(trio.current_time() + 2.9)
    assert results == []
    connection.expire(trio.current_time() + 3.0)
    assert isinstance(results[0], RequestTimedOut)
    await theirs.receive_some(1 << 20)
    await theirs.send_all(encode_command(Command(0, opaque=opaque or 0, flag=1)))
    await trio.testing.wait_all_tasks_blocked()
    assert len(results) == 1
    assert not connection.is_closed


async def test_the_table_of_waiting_requests_is_bounded(nursery: trio.Nursery) -> None:
    connection, _theirs = await in_memory(nursery, ConnectionLimits(max_waiting_requests=2))
    results: list[Command | RemotingError] = []
    for _ in range(3):
        connection.request(Command(SILENT), results.append, 5)
    assert isinstance(results[0], TooManyRequests)
    assert len(results) == 1
    assert connection.waiting_requests == 2


async def test_a_request_that_cannot_be_a_frame_is_settled_with_the_reason(
    nursery: trio.Nursery,
) -> None:
    connection, _theirs = await in_memory(nursery, ConnectionLimits())
    results: list[Command | RemotingError] = []
    connection.request(Command(1, {}, bytes(MAX_FRAME_BYTES)), results.append, 5)
    assert isinstance(results[0], FrameTooLarge)
    assert connection.waiting_requests == 0


def test_addresses_are_read_and_written() -> None:
    assert parse_address("h:1") == Address("h", 1)
    assert str(parse_address("[::1]:9876")) == "[::1]:9876"
    assert peer_address(("::ffff:10.0.0.1", 5, 0, 0)) == Address("10.0.0.1", 5)
    assert str(peer_address(("::1", 5, 0, 0))) == "[::1]:5"
