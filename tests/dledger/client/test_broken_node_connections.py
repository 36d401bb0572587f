"""A client's connection breaks at each call, or is left at each moment: no caller waits on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest
import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair

from dledger.client import node_connection
from dledger.client.client_errors import ConnectionLost, GroupUnreachable
from dledger.client.node_connection import NodeConnection
from dledger.network.plain_socket import NO_DESCRIPTOR
from dledger.network.tls import Stream
from dledger.wire.client_protocol import Operation, decode_request, encode_answer
from dledger.wire.frame import FrameDecoder
from tests.breaking_stream import BreakingStream

# More calls than one connection makes here.
MOST_CALLS = 24
NEVER = 1 << 30
ASKERS = 12
# So many requests are on their way at once; the others wait for room.
WINDOW = 3
STEP_S = 0.01
ANSWER_S = 0.035
LIMIT_S = 1.0

# What says of an ended connection what it was, or that nothing reads any more.
KEPT = {
    "answers": "how useful it was",
    "leaving": "whether it was left before it ended",
    "_last_id": "its last request",
    "_last_sent": "the last request that left",
    "_patience": "when it looked at the clock",
    "_reason": "why it ended",
    "_scope": "of the task that carried it, which has ended",
    "_waits_since": "counts while requests are open, and none is",
    "_watched": "the observer has looked since",
    "_writing": "the task that wrote has ended",
}


class Node:
    """The other end: answers each request in a while, or never; and what the client's tasks see."""

    def __init__(self, breaks_at: int, monkeypatch: pytest.MonkeyPatch, is_direct: bool) -> None:
        near, self._far = memory_stream_pair()
        self.stream = BreakingStream(near, breaks_at)
        self.is_silent = False
        self.last_answer_at = 0.0
        self.results: dict[str, tuple[object, float]] = {}
        self.seen: dict[str, float] = {}
        monkeypatch.setattr(node_connection, "MOST_REQUESTS", WINDOW)
        monkeypatch.setattr(
            node_connection, "plain_descriptor", lambda _: 7 if is_direct else NO_DESCRIPTOR
        )
        monkeypatch.setattr(node_connection, "write_now", self._write_now)
        self._takes: Iterator[int] = count()
        stream = cast(Stream, self.stream)
        self.connection = NodeConnection("n0", stream, FrameDecoder())

    def _write_now(self, _descriptor: int, frame: bytes) -> int:
        """As a socket does: now it takes all, now a part, and nothing once it is broken."""
        self.stream.handed += frame
        size = (len(frame), len(frame) // 2, 0)[next(self._takes) % 3]
        if self.stream.broken.is_set():
            return 0
        if self.stream.breaks():
            self.stream.calls_left = 0  # its error is met by the next call
            return 0
        if size:
            self._far.receive_stream.put_data(frame[:size])
        return size

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, self._far, nursery)
            nursery.start_soon(self._observe, "that it is left", self.connection.wait_left)
            nursery.start_soon(self._observe, "questions", self._wait_asked)
            for number in range(ASKERS):
                nursery.start_soon(self._ask, f"<{number}>", number)
            await self.connection.run()

    async def _serve(
        self,
        stream: trio.StapledStream[MemorySendStream, MemoryReceiveStream],
        nursery: trio.Nursery,
    ) -> None:
        decoder = FrameDecoder()
        while data := await stream.receive_some():
            for frame in decoder.feed(bytes(data)):
                if not self.is_silent:
                    nursery.start_soon(self._answer, decode_request(frame).request_id)

    async def _answer(self, request_id: int) -> None:
        await trio.sleep(ANSWER_S)
        if not self.is_silent and not self.connection.ended:
            self.last_answer_at = trio.current_time()
            await self._far.send_all(encode_answer(request_id, None))

    async def _ask(self, name: str, number: int) -> None:
        await trio.sleep(STEP_S * number)
        operation = (Operation.APPEND, Operation.STATUS)[number % 2]
        result: object
        with trio.CancelScope() as scope:
            if number == ASKERS // 2:
                scope.deadline = trio.current_time() + 2 * STEP_S
            try:
                result = await self.connection.ask(operation, [], name.encode())
            except (ConnectionLost, GroupUnreachable) as error:
                result = error
            self.results[name] = result, trio.current_time()

    async def _observe(self, what: str, wait: Any) -> None:
        await wait()
        self.seen[what] = trio.current_time()

    async def _wait_asked(self) -> None:
        """As the connection's owner does: it looks at the silence while it waits for an answer."""
        while not self.connection.left:
            await self.connection.wait_asked()
            if self.connection._prompt:
                await trio.sleep(STEP_S / 4)

    def lost(self) -> set[str]:
        return {name for name, (it, _) in self.results.items() if isinstance(it, ConnectionLost)}

    def unsent(self) -> set[str]:
        return {name for name, (it, _) in self.results.items() if isinstance(it, GroupUnreachable)}

    async def check_ended(self) -> None:
        """Nothing is kept of what it carried, and it says so to those that come late."""
        with trio.move_on_after(STEP_S) as late, pytest.raises(GroupUnreachable):
            await self.connection.ask(Operation.STATUS)
        assert not late.cancelled_caught
        fresh = NodeConnection("n0", cast(Stream, self.stream), self.connection._decoder)
        fresh.close()
        assert self.connection.ended
        assert state(self.connection) == state(fresh)


def state(connection: NodeConnection) -> dict[str, object]:
    return {
        name: len(value) if isinstance(value, trio.lowlevel.ParkingLot) else value
        for name, value in vars(connection).items()
        if name not in KEPT
    }


@pytest.mark.parametrize("is_direct", [False, True])
async def test_whatever_call_breaks_all_are_told_whether_their_requests_left(
    is_direct: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    kinds = set[type]()
    for breaks_at in range(MOST_CALLS):
        node = Node(breaks_at, monkeypatch, is_direct)
        began = trio.current_time()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.run)
                await node.connection.wait_left()
                ended_at = trio.current_time()
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
        assert node.stream.broken.is_set()
        assert len(node.results) >= ASKERS - 1, "the one that gave up may have no result"
        handed = {name for name in node.results if name.encode() in node.stream.handed}
        assert node.lost() <= handed
        assert not node.unsent() & handed
        kinds |= {type(result) for result, _ in node.results.values()}
        assert all(at <= max(ended_at, began + ASKERS * STEP_S) for _, at in node.results.values())
        assert node.seen["that it is left"] == ended_at
        assert node.seen["questions"] <= ended_at + STEP_S
        await node.check_ended()
    assert {ConnectionLost, GroupUnreachable} < kinds


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_connection_that_is_left_ends_with_its_last_answer_or_when_its_time_is_over(
    is_silent: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    lasting = set[bool]()
    for step in range(int(ASKERS * 2.5)):
        node = Node(NEVER, monkeypatch, is_direct=False)
        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            nursery.start_soon(node.run)
            await trio.sleep(STEP_S * (step + 0.3))
            node.is_silent = is_silent
            waiting = node.connection._room.statistics().tasks_waiting
            asked = set(node.connection._open)
            left_at = trio.current_time()
            node.connection.leave(LIMIT_S)
            await trio.testing.wait_all_tasks_blocked()
            # Those that wait for room or watch are told at once, and not when it has ended.
            assert trio.current_time() == left_at
            assert len([1 for _, at in node.results.values() if at == left_at]) == waiting
            assert node.seen["that it is left"] == left_at
            assert node.connection.ended == (not asked)
            lasting.add(bool(asked))
            await trio.sleep(LIMIT_S + 0.5)
            nursery.cancel_scope.cancel()
        ends = [at for name, (_, at) in node.results.items() if name in node.lost()]
        if asked and is_silent:
            assert ends == pytest.approx([left_at + LIMIT_S] * len(ends))
        else:
            assert ends == []
        assert all(began <= at <= left_at + LIMIT_S + STEP_S for _, at in node.results.values())
        assert node.connection._scope.cancelled_caught or node.connection._scope.cancel_called
        await node.check_ended()
    assert lasting == {False, True}
