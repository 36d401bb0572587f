"""A connection breaks at each of its calls: nothing of it is left, and the next one works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock, memory_stream_pair

from dledger.network.plain_socket import NO_DESCRIPTOR
from remoting.net import client_work, connection
from remoting.net.address import Address
from remoting.net.client_work import ClientWork
from remoting.net.connection import Connection, ConnectionLimits
from remoting.net.errors import ConnectionClosed, TooManyRequests
from remoting.net.held_bytes import HeldBytes
from remoting.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from remoting.wire.errors import RemotingError
from remoting.wire.frame import FrameDecoder, encode_command
from tests.breaking_stream import BreakingStream

PEER: Final = Address("192.0.2.1", 1)
# More calls than one connection makes here.
MOST_CALLS: Final = 30
ROUNDS: Final = 8
STEP_S: Final = 0.01
# Of an answer; in turns they take longer than a call that breaks.
STEPS: Final = 60
# What the peer asks for: an answer now, in steps, once it has taken enough, never, or no answer.
NOW, IN_STEPS, WHEN_TAKEN, NEVER, ONEWAY = range(5)
OURS: Final = 77
LIMITS: Final = ConnectionLimits(pause_unsent_bytes=3_000, max_commands_a_turn=3)

# What says of a closed connection what it was, or is not read any more.
KEPT: Final = {
    "last_activity": "of the past",
    "_begun_total": "which requests left",
    "_close_error": "why it closed",
    "_decoder": "of its bytes",
    "_has_decoded": "whether the peer spoke our protocol",
    "_has_peer_ended": "how its stream is closed",
    "_heard_at": "of the past",
    "_is_paused": "nothing is read any more",
    "_is_readable": "nothing is read any more",
    "_kept": "how its stream is closed",
    "_kept_bytes": "counts no more",
    "_last_words": "why it would have closed",
    "_owes_since": "of the past",
    "_partial_bytes": "counts no more",
    "_partial_since": "of the past",
    "_queued_total": "how its stream is closed",
    "_receive": "its owner",
    "_requests": "looked at by itself",
    "_scope": "of the task that carried it, which has ended",
    "_sent_total": "how its stream is closed",
    "_taken": "its reader has ended",
    "_unsent_since": "of the past",
    "_wake": "its writer has ended",
    "_wanted": "nothing is read any more",
}


class Watched:
    """Stands for `ClientWork`: has those that stand in line work in their turns, in virtual time.

    Attributes:
        line: what stands there.
        ready: what is called when there is something to read, by descriptor.
    """

    def __init__(self) -> None:
        self.line: list[client_work.Work] = []
        self.ready: dict[int, Callable[[], None]] = {}

    def add(self, work: client_work.Work) -> None:
        assert work not in self.line, "it stands in line once"
        self.line.append(work)

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        assert descriptor not in self.ready
        self.ready[descriptor] = ready

    def unwatch(self, descriptor: int) -> None:
        del self.ready[descriptor]

    async def run(self) -> None:
        while True:
            await trio.sleep(STEP_S / 4)
            for ready in list(self.ready.values()):
                ready()
            line, self.line = self.line, []
            for work in line:
                if work.work(0.0):
                    self.add(work)


class Link:
    """A connection, its stream that breaks, and the peer.

    Args:
        way: how it reads and writes: by its "stream", as with TLS; "direct"ly, as a client; or
            directly and in "turns", as a server.
    """

    def __init__(self, way: str, breaks_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
        near, self.far = memory_stream_pair()
        self._near = near
        self.stream = BreakingStream(near, breaks_at)
        self.work = Watched()
        self.held = HeldBytes(1 << 30, lambda _bytes: None)
        self.settled: dict[int, list[Command | RemotingError]] = {}
        self.after_close: list[str] = []
        self.answered = 0
        self._unsaid = b""
        self._takes: Iterator[int] = count()
        is_direct = way != "stream"
        monkeypatch.setattr(
            connection, "plain_descriptor", lambda _: 7 if is_direct else NO_DESCRIPTOR
        )
        monkeypatch.setattr(connection, "write_now", self._write_now)
        monkeypatch.setattr(connection, "read_now", self._read_now)
        monkeypatch.setattr(connection, "read_some", self._read_some)
        self.connection = self.another() if way != "turns" else self.another(self.work)

    def another(self, work: Watched | None = None) -> Connection:
        turns = cast(ClientWork, work)
        return Connection(PEER, LIMITS, held=self.held, client_work=turns if work else None)

    # --- as a socket does ---------------------------------------------------------------------

    def _write_now(self, _descriptor: int, frame: bytes) -> int:
        size = (len(frame), len(frame) // 2, 0)[next(self._takes) % 3]
        if self.stream.broken.is_set() or self._breaks():
            return 0
        self.stream.handed += frame[:size]
        if size:
            self.far.receive_stream.put_data(frame[:size])
        return size

    def _read_now(self, _descriptor: int, most: int) -> bytes | None:
        if self.stream.broken.is_set() or self._breaks():
            self.stream.broken.set()
            raise OSError("it broke")
        try:
            return bytes(cast(Any, self._near.receive_stream)._incoming.get_nowait(most))
        except trio.WouldBlock:
            self.stream.calls_left += 1  # nothing came: that is no call
            return None

    async def _read_some(self, _descriptor: int, most: int) -> bytes:
        return await self.stream.receive_some(most)

    def _breaks(self) -> bool:
        """Whether this call breaks; its error is met by the next one."""
        if self.stream.breaks():
            self.stream.calls_left = 0
            return True
        return False

    # --- the peer -----------------------------------------------------------------------------

    async def ask(self) -> None:
        """The peer asks, in pieces that end in the middle of a frame."""
        numbers = count(1000)
        for number in range(ROUNDS):
            for kind in (ONEWAY, NOW, WHEN_TAKEN, IN_STEPS, NEVER)[: 5 if number == 0 else 4]:
                request = Command(kind, {}, bytes(300), next(numbers))
                request.flag = ONEWAY_FLAG if kind == ONEWAY else 0
                self._unsaid += encode_command(request)
            self._say(100)
            await trio.sleep(STEP_S)
        self._say(0)

    def _say(self, kept_bytes: int) -> None:
        """Send all but the last bytes."""
        size = max(0, len(self._unsaid) - kept_bytes)
        data, self._unsaid = self._unsaid[:size], self._unsaid[size:]
        if data and not self.stream.is_closed:
            self._near.receive_stream.put_data(data)

    async def read(self) -> None:
        """The peer reads slowly, and answers each second request."""
        decoder = FrameDecoder()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self.far.receive_some(900):
                for command in decoder.feed(bytes(data)):
                    if command.flag & RESPONSE_FLAG:
                        self.answered += 1
                    elif command.opaque % 2:
                        self._unsaid += encode_command(command.reply())
                        self._say(0)
                await trio.sleep(STEP_S / 5)

    # --- this side ----------------------------------------------------------------------------

    def receive(self, there: Connection, commands: Sequence[Command]) -> int:
        for command in commands:
            if command.code == NOW:
                there.send(command.reply(body=bytes(3_500)))
            elif command.code == IN_STEPS:
                there.go_on(self._steps(there, command))
            elif command.code == WHEN_TAKEN:
                there.when_taken(lambda command=command: self._late(there, command))  # type: ignore[misc]
        return len(commands)

    def _steps(self, there: Connection, command: Command) -> Iterator[None]:
        for _ in range(STEPS):
            self._note(there, "a step")
            yield
        there.send(command.reply(body=bytes(1_500)))

    def _late(self, there: Connection, command: Command) -> None:
        self._note(there, "a late answer")
        there.send(command.reply(body=bytes(900)))

    def _note(self, there: Connection, what: str) -> None:
        if there.is_closed:
            self.after_close.append(what)

    async def request(self) -> None:
        """Requests of this side, also behind much that waits."""
        for number in range(ROUNDS * 3):
            body = b"<%d>" % number + bytes(200)
            told = self.settled.setdefault(number, [])
            self.connection.request(Command(OURS, {}, body), told.append, 600)
            await trio.sleep(STEP_S / 3)

    async def run(self) -> None:
        """All of that, until the connection ends."""
        async with trio.open_nursery() as nursery:
            for task in (self.work.run, self.ask, self.read, self.request):
                nursery.start_soon(task)
            stream = cast(trio.abc.Stream, self.stream)
            await self.connection.run(stream, self.receive)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()

    def check_nothing_is_left(self) -> None:
        """Nothing of it is kept, and each request was told once whether it may have left."""
        assert self.connection.is_closed
        assert self.stream.is_closed
        fresh = self.another()
        fresh.close("never opened")
        assert state(self.connection) == state(fresh)
        assert self.connection.waiting_requests == 0
        assert self.held.total_bytes == 0
        assert (self.work.line, self.work.ready) == ([], {})
        assert self.after_close == []
        for number, told in self.settled.items():
            assert len(told) == 1, f"request {number} was told {told}"
            error = told[0]
            if isinstance(error, ConnectionClosed):
                has_left = b"<%d>" % number in self.stream.handed
                # A part of its frame may have left, too.
                assert error.outcome_unknown >= has_left
            else:
                assert not isinstance(error, TooManyRequests)

    def never_left(self) -> int:
        """How many requests were told that they certainly never left."""
        return sum(
            isinstance(told[0], ConnectionClosed) and not told[0].outcome_unknown
            for told in self.settled.values()
        )


@pytest.mark.parametrize("way", ["stream", "direct", "turns"])
async def test_reading_goes_on_when_what_is_kept_is_answered_though_nothing_waits(
    way: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    link = Link(way, 1 << 30, monkeypatch)
    link._takes = repeat(0)  # a socket that takes all at once
    kept: list[Command] = []

    def keep(_there: Connection, commands: Sequence[Command]) -> int:
        kept.extend(commands)
        return len(commands)

    requests = 40
    async with trio.open_nursery() as nursery:
        for number in range(requests):
            link._unsaid += encode_command(Command(NEVER, {}, bytes(4_000), number))
            link._say(0)
        nursery.start_soon(link.work.run)
        nursery.start_soon(link.read)
        nursery.start_soon(link.connection.run, cast(trio.abc.Stream, link.stream), keep)
        most = 0
        for _ in range(requests):
            await trio.sleep(STEP_S * 3)
            most = max(most, len(kept))
            if link.connection._is_paused:
                assert link.work.ready == {}, "what is not read does not wake the process"
            link.connection.send(kept.pop(0).reply())
        assert most < requests / 2, "it paused"
        await trio.sleep(1)
        assert link.answered == requests
        nursery.cancel_scope.cancel()


def state(one: Connection) -> dict[str, Any]:
    return {name: value for name, value in vars(one).items() if name not in KEPT} | {
        "_client_work": None
    }


@pytest.mark.parametrize("way", ["stream", "direct", "turns"])
async def test_whatever_call_breaks_nothing_of_the_connection_is_left(
    way: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    never_left, answered = 0, 0
    for breaks_at in range(MOST_CALLS):
        link = Link(way, breaks_at, monkeypatch)
        with trio.fail_after(60):
            await link.run()
        assert link.stream.broken.is_set()
        link.check_nothing_is_left()
        # What comes late is refused, and changes nothing.
        told: list[Command | RemotingError] = []
        assert link.connection.request(Command(OURS), told.append, 5) is None
        assert [error.outcome_unknown for error in told if isinstance(error, ConnectionClosed)] == [
            False
        ]
        link.connection.send(Command(NOW))
        link.connection.go_on(iter([None]))
        link.connection.when_taken(lambda: pytest.fail("it is closed"))
        link.check_nothing_is_left()
        never_left += link.never_left()
        answered += link.answered
    assert never_left, "some were behind what the peer had not taken"
    assert answered


@pytest.mark.parametrize("way", ["stream", "direct", "turns"])
async def test_a_connection_that_does_not_break_answers_all(
    way: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """So that the calls that break are calls of one that works, with each way of answering."""
    link = Link(way, 1 << 30, monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        await trio.sleep(5)
        assert link.answered == ROUNDS * 3
        assert link.connection.unsent_bytes == 0
        assert [number for number, told in link.settled.items() if not told] == [
            number for number in link.settled if number % 2 == 0
        ]
        link.connection.close("the test ends")
    link.check_nothing_is_left()


async def test_a_peer_that_completes_frames_gets_on_though_it_is_always_in_one(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    link = Link("stream", 1 << 30, monkeypatch)
    async with trio.open_nursery() as nursery:
        stream = cast(trio.abc.Stream, link.stream)
        nursery.start_soon(link.connection.run, stream, link.receive)
        for _ in range(30):
            link._unsaid += encode_command(Command(ONEWAY, {}, bytes(300), flag=ONEWAY_FLAG))
            link._say(100)
            await trio.sleep(1)
            assert trio.current_time() - link.connection.stalled_since() <= 1
        await trio.sleep(60)
        assert trio.current_time() - link.connection.stalled_since() >= 60
        nursery.cancel_scope.cancel()


async def test_requests_of_one_number_are_all_let_go_with_their_answer(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    link = Link("stream", 1 << 30, monkeypatch)
    async with trio.open_nursery() as nursery:
        stream = cast(trio.abc.Stream, link.stream)
        nursery.start_soon(link.read)
        nursery.start_soon(link.connection.run, stream, lambda _there, commands: len(commands))
        for _ in range(3):
            link._unsaid += encode_command(Command(NEVER, {}, bytes(300), 5))
        link._say(0)
        await trio.sleep(1)
        assert link.held.total_bytes > 900
        link.connection.send(Command(NEVER, opaque=5).reply())
        await trio.sleep(1)
        assert link.held.total_bytes == 0
        nursery.cancel_scope.cancel()


async def test_what_is_being_sent_arrives_before_a_connection_closes(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    ours, theirs = memory_stream_pair()

    async def send_slowly(data: bytes) -> None:
        await trio.sleep(1)
        await ours.send_all(data)

    slow: Any = SimpleNamespace(
        send_all=send_slowly, receive_some=ours.receive_some, aclose=ours.aclose
    )
    one = Link("stream", 0, monkeypatch).another()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run, slow, lambda _there, some: len(some))
        frame = encode_command(Command(NOW, {}, bytes(2_000)))
        one.send_frame(frame)
        await trio.testing.wait_all_tasks_blocked()
        one.close_when_sent("it says so")
        heard = b""
        while data := await theirs.receive_some(700):
            heard += data
        assert heard == frame
    assert one.is_closed


async def test_a_task_that_gives_up_its_turn_is_passed_over() -> None:
    work, went_on = ClientWork(), list[int]()

    async def wait(number: int) -> None:
        await work.turn()
        went_on.append(number)

    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait, 0)
            await trio.testing.wait_all_tasks_blocked()
            waiting.cancel_scope.cancel()
        nursery.start_soon(wait, 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(work.run)
        await trio.testing.wait_all_tasks_blocked()
        assert went_on == [1]
        nursery.cancel_scope.cancel()
