"""A client's connection to one node, whose other end is the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from dledger.client import node_connection
from dledger.client.client_errors import ConnectionLost, GroupUnreachable
from dledger.client.node_connection import NodeConnection
from dledger.errors import EntryTooLarge, LogFull
from dledger.wire.client_protocol import (
    Operation,
    Request,
    decode_request,
    encode_answer,
    encode_error,
)
from dledger.wire.frame import MAX_FRAME_BYTES, FrameDecoder, encode_frame


class OtherEnd:
    """The node's side of the socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.requests: list[Request] = []
        self._decoder = FrameDecoder()

    async def read(self, count: int) -> list[Request]:
        """The first requests; waits until so many have come."""
        with trio.fail_after(10):
            while len(self.requests) < count:
                data = await self.stream.receive_some(1 << 16)
                self.requests += map(decode_request, self._decoder.feed(bytes(data)))
        return self.requests[:count]

    async def answer(self, *requests: Request) -> None:
        frames = [encode_answer(each.request_id, each.payload.decode()) for each in requests]
        await self.stream.send_all(b"".join(frames))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[NodeConnection, OtherEnd]]:
    here, there = trio.socket.socketpair()
    end = OtherEnd(trio.SocketStream(there))
    connection = NodeConnection("n0", trio.SocketStream(here), FrameDecoder())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield connection, end
        connection.close()
    await end.stream.aclose()


class Asker:
    """Asks in tasks of its own, and keeps what came of it."""

    def __init__(self, connection: NodeConnection, nursery: trio.Nursery) -> None:
        self.connection = connection
        self.nursery = nursery
        self.results: dict[str, object] = {}

    def ask(self, *names: str) -> None:
        for name in names:
            self.nursery.start_soon(self._ask, name)

    async def _ask(self, name: str) -> None:
        try:
            payload = name.encode()
            self.results[name], _ = await self.connection.ask(Operation.APPEND, [1], payload)
        except (ConnectionLost, GroupUnreachable, LogFull) as error:
            self.results[name] = error


async def test_answers_in_any_order_reach_those_who_asked() -> None:
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("a", "b", "c", "d")
            await end.answer(*reversed(await end.read(4)))
        assert asker.results == {name: name for name in "abcd"}


async def test_what_many_tasks_ask_at_once_leaves_together() -> None:
    async with connected() as (connection, end), trio.open_nursery() as nursery:
        asker = Asker(connection, nursery)
        asker.ask(*(str(number) for number in range(100)))
        await trio.testing.wait_all_tasks_blocked()
        # One was written at once, all others by one call.
        pieces = [bytes(await end.stream.receive_some(1 << 16))]
        assert len(pieces[0]) > 100 * len(encode_frame([1, "append", [1]], b"1"))
        nursery.cancel_scope.cancel()


async def test_no_more_than_the_bound_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connection, "MOST_REQUESTS", 4)
    names = [str(number) for number in range(20)]
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask(*names)
            for answered in range(20):
                await trio.testing.wait_all_tasks_blocked()
                requests = await end.read(min(answered + 4, 20))
                with trio.move_on_after(0):
                    await end.read(answered + 5)
                assert len(end.requests) == min(answered + 4, 20)
                await end.answer(requests[answered])
        assert asker.results == {name: name for name in names}


async def test_no_more_bytes_than_the_bound_are_on_their_way_but_one_large_request_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_connection, "MOST_BYTES", 10)
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("x" * 50)
            await trio.testing.wait_all_tasks_blocked()
            asker.ask("y" * 6, "z" * 6)
            for number in range(3):
                await trio.testing.wait_all_tasks_blocked()
                requests = await end.read(number + 1)
                assert len(end.requests) == number + 1
                await end.answer(requests[number])
        assert len(asker.results) == 3


async def test_the_room_of_a_large_request_is_filled_with_all_small_ones_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_connection, "MOST_BYTES", 50)
    async with connected() as (connection, end), trio.open_nursery() as nursery:
        asker = Asker(connection, nursery)
        asker.ask("x" * 50)
        await trio.testing.wait_all_tasks_blocked()
        asker.ask(*(chr(ord("a") + number) for number in range(20)))
        await trio.testing.wait_all_tasks_blocked()
        await end.answer(*await end.read(1))
        assert len(await end.read(21)) == 21
        await end.answer(*end.requests[1:])


async def test_more_than_a_frame_holds_is_refused_and_the_connection_goes_on() -> None:
    async with connected() as (connection, end), trio.open_nursery() as nursery:
        with pytest.raises(EntryTooLarge):
            await connection.ask(Operation.APPEND, [1], bytes(MAX_FRAME_BYTES))
        asker = Asker(connection, nursery)
        asker.ask("a")
        await end.answer(*await end.read(1))


async def test_the_answer_to_a_cancelled_question_reaches_nobody_else() -> None:
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            Asker(connection, nursery).ask("given up")
            (given_up,) = await end.read(1)
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("next")
            (_, following) = await end.read(2)
            await end.answer(given_up, following)
        assert asker.results == {"next": "next"}


async def test_a_node_s_error_is_raised_as_itself_and_the_others_go_on() -> None:
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("a", "b")
            first, second = await end.read(2)
            await end.stream.send_all(encode_error(first.request_id, LogFull(3, 4)))
            await end.answer(second)
        errors = [each for each in asker.results.values() if isinstance(each, LogFull)]
        assert [vars(error) for error in errors] == [{"pending_entries": 3, "pending_bytes": 4}]
        assert len(asker.results) == 2


async def test_when_it_breaks_what_had_left_is_unknown_and_what_had_not_never_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_connection, "MOST_REQUESTS", 2)
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("a", "b", "c", "d")
            sent = await end.read(2)
            await end.stream.aclose()
        unknown = [name for name, it in asker.results.items() if isinstance(it, ConnectionLost)]
        never = [name for name, it in asker.results.items() if isinstance(it, GroupUnreachable)]
        assert sorted(unknown) == sorted(each.payload.decode() for each in sent)
        assert len(never) == 2
        with pytest.raises(GroupUnreachable):
            await connection.ask(Operation.STATUS)


async def test_what_waits_behind_a_full_socket_when_it_breaks_never_happened() -> None:
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("x" * 3_000_000)
            await trio.testing.wait_all_tasks_blocked()
            asker.ask("b", "c")
            await trio.testing.wait_all_tasks_blocked()
            await end.stream.aclose()
        kinds = {name[0]: type(result) for name, result in asker.results.items()}
        assert kinds == {"x": ConnectionLost, "b": GroupUnreachable, "c": GroupUnreachable}


async def test_a_connection_that_is_left_answers_what_is_on_its_way_and_ends(
    autojump_clock: object,
) -> None:
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("a", "b")
            first, second = await end.read(2)
            connection.leave(limit_s=5.0)
            with pytest.raises(GroupUnreachable):
                await connection.ask(Operation.STATUS)
            await end.answer(first)
            await trio.testing.wait_all_tasks_blocked()
            assert not connection.ended
            await end.answer(second)
        assert asker.results == {"a": "a", "b": "b"}
        assert connection.ended


HOSTILE = {
    "an answer to no open request": encode_answer(99, None),
    "the same answer twice": encode_answer(1, None) + encode_answer(1, None),
    "no number": encode_frame(["1", "ok", None]),
    "a number that is a truth": encode_frame([True, "fine", None]),
    "no value": encode_frame([1, "ok"]),
    "another word": encode_frame([1, "maybe", None]),
    "an error without fields": encode_frame([1, "error", "LogFull", None, "text"]),
    "an error without a name": encode_frame([1, "error", 7, {}, "text"]),
    "no list": b"\x00\x00\x00\x03\x00\x01\x07",
    "no msgpack": b"\x00\x00\x00\x03\x00\x01\xc1",
    "a length that cannot be": b"\xff\xff\xff\xff\x00\x01",
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
async def test_a_node_that_answers_nonsense_is_left_and_its_callers_are_told_that_it_is_unknown(
    said: bytes,
) -> None:
    async with connected() as (connection, end):
        async with trio.open_nursery() as nursery:
            asker = Asker(connection, nursery)
            asker.ask("a", "b")
            await end.read(2)
            await end.stream.send_all(said)
            with trio.fail_after(10):
                await connection.wait_left()
        assert connection.ended
        assert any(isinstance(result, ConnectionLost) for result in asker.results.values())
        assert set(asker.results) == {"a", "b"}
