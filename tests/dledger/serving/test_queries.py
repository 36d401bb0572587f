"""Queries of a state machine by clients, at real members."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

import dledger
from dledger.core.replica import Replica
from dledger.node.node import Node
from dledger.query_errors import OperationUnknown
from dledger.serving import client_server
from dledger.wire.client_protocol import Operation, Request, encode_request
from dledger.wire.frame import FrameDecoder, encode_frame
from dledger.wire.handshake import Caller, Hello, encode_hello
from dledger.wire.query_protocol import MAX_ARGUMENT_BYTES, MAX_RESULT_BYTES, Queried, Query
from tests.dledger.running_members import until
from tests.dledger.serving.shelf import Shelf, ask, connected, running


async def test_a_query_is_answered_by_the_state_with_its_index(tmp_path: Path) -> None:
    async with running(tmp_path, dledger.WithSessions(Shelf())) as node, connected(node) as client:
        put = await node.append(b"tea=3")
        assert await ask(client, Query("get", ["tea"])) == Queried("3", put.index, "n0")
        assert await ask(client, Query("get", ["milk", [1, {"a": b"b"}]])) == Queried(
            [1, {"a": b"b"}], put.index, "n0"
        )
        stale = Query("get", ["tea"], stale=True, after=put.index)
        assert await ask(client, stale) == Queried("3", put.index, "n0")
        assert (await ask(client, Query("echo", (1, (2, 3))))).result == [1, [2, 3]]


async def test_a_query_comes_after_the_read_index_and_a_stale_one_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        held, reads = trio.Event(), 0
        read = node.read

        async def slow_read(node: Node) -> int:
            nonlocal reads
            reads += 1
            await held.wait()
            return await read()

        monkeypatch.setattr(Node, "read", slow_read)
        answers: list[object] = []

        async def query(number: int) -> None:
            answers.append((await ask(client, Query("echo", [number]))).result)

        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(query, number)
            await until(lambda: reads == 1)
            assert (await ask(client, Query("echo", ["at once"], stale=True))).result == ["at once"]
            assert answers == []
            held.set()
        assert sorted(answers) == [[number] for number in range(500)]  # type: ignore[type-var]
        assert reads <= 3  # they share them


async def test_a_member_that_cannot_confirm_its_state_answers_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Shelf()
    async with running(tmp_path, machine) as node, connected(node) as client:

        async def unconfirmed(_: Node) -> int:
            raise dledger.ReadUnavailable("no quorum confirmed it")

        monkeypatch.setattr(Node, "read", unconfirmed)
        with pytest.raises(dledger.ReadUnavailable, match="no quorum"):
            await ask(client, Query("get", ["tea"]))
        assert machine.asked == 0
        assert (await ask(client, Query("get", ["tea"], stale=True))).result is None


async def test_each_wrong_query_has_its_error_and_the_next_one_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        wrong: list[tuple[Query, type[dledger.Rejected], str]] = [
            (Query("put", ["tea"]), dledger.QueryUnknown, "breaks, echo, get, large, odd"),
            (Query("apply", [[]]), dledger.QueryUnknown, "no query 'apply'"),
            (Query("__init__", []), dledger.QueryUnknown, "no query"),
            (Query("breaks", []), dledger.QueryFailed, "LookupError: xxx"),
            (Query("odd", []), dledger.QueryInvalid, "not made of plain values"),
            (Query("large", [MAX_RESULT_BYTES]), dledger.QueryInvalid, "ask for less"),
            (Query("get", []), dledger.QueryInvalid, "does not take these arguments"),
            (Query("get", ["x" * MAX_ARGUMENT_BYTES]), dledger.QueryInvalid, "65536"),
            (Query("get", [object()]), dledger.QueryInvalid, "argument is not"),
            (Query("get", ["a"], after=2**70), dledger.QueryInvalid, "no entry"),
        ]
        for query, kind, words in wrong:
            for stale in (False, True):
                with pytest.raises(kind, match=words) as raised:
                    await ask(client, query._replace(stale=stale))
                assert len(str(raised.value)) < 400
        assert (await ask(client, Query("large", [MAX_RESULT_BYTES - 5]))).result
        await node.append(b"the=node goes on")
    told = [record for record in caplog.records if "raised" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.ERROR]  # once a minute
    assert told[0].exc_info is not None


async def test_a_stale_query_waits_for_the_entry_that_it_needs_and_not_for_ever(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        put = await node.append(b"tea=3")
        answers: list[Queried] = []

        async def query() -> None:
            wanted = Query("get", ["tea"], stale=True, after=put.index + 1, wait_ms=20_000)
            answers.append(await ask(client, wanted))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(query)
            await trio.sleep(0.05)
            assert answers == []
            await node.append(b"tea=4")
        assert answers == [Queried("4", put.index + 1, "n0")]
        with pytest.raises(dledger.ReadUnavailable, match=f"needs entry {put.index + 9}"):
            await ask(client, Query("get", [], stale=True, after=put.index + 9, wait_ms=1))


async def test_a_state_that_is_too_old_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Shelf()
    async with running(tmp_path, machine) as node, connected(node) as client:
        fresh = Query("get", ["tea"], stale=True, max_lag_ms=1_000)
        monkeypatch.setattr(Replica, "fresh_as_of", trio.current_time())
        assert (await ask(client, fresh)).result is None
        monkeypatch.setattr(Replica, "fresh_as_of", trio.current_time() - 5.0)
        with pytest.raises(dledger.ReadUnavailable, match="1 were allowed"):
            await ask(client, fresh)
        assert machine.asked == 1


async def test_a_state_that_is_being_replaced_is_not_looked_at(tmp_path: Path) -> None:
    machine = Shelf()
    async with running(tmp_path, machine) as node, connected(node) as client:
        node._member.snapshots.awaited.is_restoring = True
        for stale in (False, True):
            with pytest.raises(dledger.ReadUnavailable, match="is being replaced"):
                await ask(client, Query("get", ["tea"], stale=stale))
        node._member.snapshots.awaited.is_restoring = False
        assert machine.asked == 0


async def test_a_machine_without_queries_says_how_to_have_some(tmp_path: Path) -> None:
    async with running(tmp_path, dledger.LogOnly()) as node, connected(node) as client:
        with pytest.raises(dledger.QueryUnknown, match=r"mark methods by @dledger\.query"):
            await ask(client, Query("get", []))


async def test_waits_of_queries_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_server, "MAX_WAITING", 3)
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        refused: list[dledger.TooManyWaiting] = []

        async def query() -> None:
            try:
                await ask(client, Query("get", [""], stale=True, after=1_000, wait_ms=30_000))
            except dledger.TooManyWaiting as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(query)
            await until(lambda: len(refused) == 2)
            assert (await ask(client, Query("get", [""]))).result is None
            nursery.cancel_scope.cancel()


async def test_a_request_of_a_later_version_is_refused_and_the_connection_goes_on(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, Shelf()) as node:
        stream = await trio.open_tcp_stream(*node.config.address)
        async with stream:
            await stream.send_all(encode_hello(Hello(Caller.CLIENT, "g", "n0")))
            await stream.receive_some(1 << 16)
            status = encode_request(Request(3, Operation.STATUS, [], b""))
            await stream.send_all(encode_frame([2, "fly" * 100, []], b"x" * 1_000) + status)
            frames, decoder = list[list[object]](), FrameDecoder()
            with trio.fail_after(10):
                while len(frames) < 2:
                    data = await stream.receive_some(1 << 16)
                    assert data, "the member closed the connection"
                    frames += [frame.header for frame in decoder.feed(bytes(data))]
    assert frames[0][:3] == [2, "error", OperationUnknown.__name__]
    assert "upgrade it" in str(frames[0][4])
    assert frames[1][:2] == [3, "ok"]
