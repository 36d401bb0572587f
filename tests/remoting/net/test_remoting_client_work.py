"""Clients get a share of the loop's time, in turns, whatever they send."""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
import trio
import trio.testing

from remoting.net import client_work
from remoting.net.address import Address
from remoting.net.answering import Steps, answer_each
from remoting.net.client_work import SLICE_S, TURN_S, ClientWork
from remoting.net.connection import Connection, ConnectionLimits
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder, encode_command

PEER = Address("192.0.2.1", 1)


class Clock:
    """A clock of turns that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for user in ("client_work", "connection"):
        monkeypatch.setattr(f"remoting.net.{user}.now", clock)
    return clock


@pytest.fixture
async def work(nursery: trio.Nursery) -> ClientWork:
    made = ClientWork()
    nursery.start_soon(made.run)
    await trio.testing.wait_all_tasks_blocked()
    return made


class Burden:
    """Work of many parts, each of which takes as long as a turn."""

    def __init__(self, clock: Clock, parts: int) -> None:
        self.clock = clock
        self.left = parts

    def work(self, until: float) -> bool:
        self.clock.now_s = until
        self.left -= 1
        return self.left > 0


async def test_the_loop_does_other_things_between_two_slices(
    work: ClientWork, clock: Clock
) -> None:
    burdens = Burden(clock, 500), Burden(clock, 500)
    for burden in burdens:
        work.add(burden)
    rounds = 0
    while burdens[0].left or burdens[1].left:
        await trio.lowlevel.checkpoint()
        rounds += 1
    turns_a_slice = round(SLICE_S / TURN_S)
    assert 1_000 / turns_a_slice <= rounds <= 1_000 / turns_a_slice + 5


async def test_work_that_stands_in_line_alone_has_the_whole_slice(
    work: ClientWork, clock: Clock
) -> None:
    burden, began = Burden(clock, 2), clock.now_s
    work.add(burden)
    while burden.left:
        await trio.lowlevel.checkpoint()
    assert clock.now_s - began == pytest.approx(2 * SLICE_S)


async def test_what_stands_in_line_takes_turns(work: ClientWork, clock: Clock) -> None:
    long, short = Burden(clock, 100), Burden(clock, 2)
    work.add(long)
    work.add(short)
    while short.left:
        await trio.lowlevel.checkpoint()
    # Both end their turns in one slice; the loop may begin the next before it comes back here.
    assert long.left >= 100 - 2 * round(SLICE_S / TURN_S)


async def test_steps_are_taken_in_slices_and_an_error_ends_its_own_steps_alone(
    work: ClientWork, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[int] = []

    def steps(count: int) -> Iterator[None]:
        for number in range(count):
            clock.now_s += TURN_S
            taken.append(number)
            yield
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        work.begin("a table that is read", steps(50))
        assert len(taken) == 1
        work.later("another one", steps(3))
        await trio.testing.wait_all_tasks_blocked()
    assert len(taken) == 53
    assert [record.getMessage() for record in caplog.records] == [
        "another one failed, and ends here",
        "a table that is read failed, and ends here",
    ]


async def test_one_call_that_fails_does_not_keep_the_others_from_being_made(
    work: ClientWork, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[float] = []
    with caplog.at_level(logging.ERROR):
        work.each("answers", [2, 0, 1], lambda number: results.append(1 / number))
    assert results == [0.5, 1.0]
    assert len(caplog.records) == 1


async def test_a_task_waits_for_its_turn_and_few_go_on_in_one_slice(work: ClientWork) -> None:
    went: list[int] = []
    rounds: list[int] = []

    async def go(number: int) -> None:
        await work.turn()
        went.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(40):
            nursery.start_soon(go, number)
        while len(went) < 40:
            rounds.append(len(went))
            await trio.lowlevel.checkpoint()
    # This task is woken at any place of a round, so it may see those of two.
    few = client_work._COST_A_SLICE // client_work.TURN_COST
    assert max(b - a for a, b in pairwise(rounds)) <= 2 * few


async def test_a_task_that_is_cancelled_leaves_the_line(work: ClientWork) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await work.turn()
    assert scope.cancelled_caught
    await trio.testing.wait_all_tasks_blocked()
    await work.turn()


async def test_tasks_that_wait_for_a_turn_go_on_when_turns_end() -> None:
    work, went = ClientWork(), list[int]()

    async def go(number: int) -> None:
        with trio.CancelScope(shield=True):
            await work.turn()
        went.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert went == []
        work.close()
        nursery.start_soon(go, 2)
    assert sorted(went) == [1, 2]


async def test_what_comes_after_its_end_is_dropped_and_touches_no_descriptor() -> None:
    work = ClientWork()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    taken: list[int] = []
    work.later("too late", map(taken.append, range(3)))
    work.watch(0, lambda: None)
    work.unwatch(0)
    assert taken == []


async def connected(
    nursery: trio.Nursery,
    work: ClientWork | None,
    receive: Callable[[Connection, Sequence[Command]], int],
) -> trio.SocketStream:
    ours, theirs = trio.socket.socketpair()
    connection = Connection(PEER, ConnectionLimits(), client_work=work)
    nursery.start_soon(connection.run, trio.SocketStream(ours), receive)
    await trio.testing.wait_all_tasks_blocked()
    return trio.SocketStream(theirs)


async def replies(stream: trio.SocketStream, count: int) -> list[Command]:
    decoder, found = FrameDecoder(), list[Command]()
    while len(found) < count:
        found += decoder.feed(bytes(await stream.receive_some(1 << 20)))
    return found


async def test_requests_that_came_in_one_read_are_answered_in_several_slices(
    nursery: trio.Nursery, work: ClientWork, clock: Clock
) -> None:
    handed: list[int] = []

    def answer(_connection: Connection, command: Command) -> Command:
        clock.now_s += 0.4 * TURN_S
        return command.reply(body=b"%d" % command.opaque)

    def receive(connection: Connection, commands: Sequence[Command]) -> int:
        taken = answer_each(connection, commands, answer)
        handed.append(taken)
        return taken

    stream = await connected(nursery, work, receive)
    await stream.send_all(b"".join(encode_command(Command(1, opaque=n)) for n in range(50)))
    assert [int(one.body) for one in await replies(stream, 50)] == list(range(50))
    assert max(handed) <= SLICE_S / (0.4 * TURN_S) + 1
    assert sum(handed) == 50
    await stream.aclose()


@pytest.mark.parametrize("in_turns", [True, False])
async def test_requests_wait_for_an_answer_in_steps_that_came_before_them(
    nursery: trio.Nursery, work: ClientWork, in_turns: bool
) -> None:
    def slow(command: Command) -> Steps:
        for _ in range(10):
            yield
        if command.opaque == 2:
            raise ZeroDivisionError
        return command.reply(body=b"slow")

    def answer(_connection: Connection, command: Command) -> Command | Steps:
        return slow(command) if command.code == 2 else command.reply(body=b"quick")

    def receive(connection: Connection, commands: Sequence[Command]) -> int:
        return answer_each(connection, commands, answer)

    stream = await connected(nursery, work if in_turns else None, receive)
    codes = (1, 2, 2, 1)
    frames = [encode_command(Command(code, opaque=at)) for at, code in enumerate(codes)]
    await stream.send_all(b"".join(frames))
    found = await replies(stream, 4)
    assert [(one.opaque, one.code) for one in found] == [(0, 0), (1, 0), (2, 1), (3, 0)]
    assert [one.body for one in found] == [b"quick", b"slow", b"", b"quick"]
    await stream.aclose()


async def test_a_client_that_leaves_ends_the_steps_of_its_answer(
    nursery: trio.Nursery, work: ClientWork, clock: Clock
) -> None:
    steps = 0

    def endless() -> Steps:
        nonlocal steps
        while True:
            clock.now_s += TURN_S
            steps += 1
            yield

    connections: list[Connection] = []

    def receive(connection: Connection, commands: Sequence[Command]) -> int:
        connections.append(connection)
        return answer_each(connection, commands, lambda _connection, _command: endless())

    stream = await connected(nursery, work, receive)
    await stream.send_all(encode_command(Command(1)))
    while not connections:
        await trio.lowlevel.checkpoint()
    connections[0].close("it is to leave")
    await trio.testing.wait_all_tasks_blocked()
    before = steps
    await trio.sleep(0.01)
    assert steps == before
    await stream.aclose()


async def test_a_flood_in_one_read_leaves_room_for_another_client(
    nursery: trio.Nursery, work: ClientWork, clock: Clock
) -> None:
    order: list[int] = []

    def answer(_connection: Connection, command: Command) -> None:
        order.append(command.code)
        clock.now_s += 0.0002

    def receive(connection: Connection, commands: Sequence[Command]) -> int:
        return answer_each(connection, commands, answer)

    flood = await connected(nursery, work, receive)
    other = await connected(nursery, work, receive)
    await flood.send_all(encode_command(Command(1)) * 500)
    await other.send_all(encode_command(Command(2)))
    while 2 not in order:
        await trio.lowlevel.checkpoint()
    assert order.index(2) < 100
    await flood.aclose()
    await other.aclose()


def test_a_decoder_returns_so_many_commands_at_once_and_keeps_the_rest() -> None:
    data = b"".join(encode_command(Command(1, opaque=n)) for n in range(10))
    decoder = FrameDecoder(max_commands=4)
    found = [len(decoder.feed(data + b"\0\0"))]
    while decoder.has_more:
        found.append(len(decoder.feed(b"")))
    assert found == [4, 4, 2, 0][: len(found)]
    assert sum(found) == 10
    assert decoder.buffered_bytes == 2
