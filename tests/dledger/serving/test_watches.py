"""Watches of a state machine by clients, at real members."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import dledger
from dledger.machines import Objects, ReplicatedDict
from dledger.machines.command import Command, encode_command
from dledger.serving import client_server, served_watches
from dledger.wire import watch_protocol
from dledger.wire.watch_protocol import ValueDeleted, ValueSet, Watched, WatchedState
from tests.dledger.running_members import until
from tests.dledger.serving.shelf import Books, Shelf, connected, running, watch
from tests.dledger.snapshots.test_snapshots import Trio, append_until_compacted

TEA, MILK = ("books", "tea"), ("books", "milk")


async def test_changes_of_a_path_come_with_the_index_up_to_which_they_are_all(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, dledger.WithSessions(Shelf())) as node, connected(node) as client:
        first = await node.append(b"tea=1")
        await node.append(b"milk=1&tea=2")
        last = await node.append(b"milk")
        begin, index = first.index - 1, first.index
        assert await watch(client, "books", "tea", after=begin) == (
            [ValueSet(index, TEA, "1"), ValueSet(index + 1, TEA, "2")],
            last.index,
            "n0",
        )
        assert (await watch(client, after=index)).events == [
            ValueSet(index + 1, MILK, "1", more=True),
            ValueSet(index + 1, TEA, "2"),
            ValueDeleted(index + 2, MILK),
        ]
        assert await watch(client, "films", after=begin) == ([], last.index, "n0")
        assert await watch(client, after=last.index) == ([], last.index, "n0")


async def test_a_watch_without_an_index_begins_with_the_state(tmp_path: Path) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        put = await node.append(b"tea=1&milk=2")
        state = await watch(client, "books", "tea")
        assert state == ([WatchedState(put.index, {TEA: "1"})], put.index, "n0")
        assert (await watch(client)).events == [WatchedState(put.index, {TEA: "1", MILK: "2"})]
        assert (await watch(client, "films")).events == [WatchedState(put.index, {})]


async def test_a_watch_without_an_index_sees_what_was_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        put = await node.append(b"tea=1")

        async def unconfirmed(_: dledger.Node) -> int:
            raise dledger.ReadUnavailable("no quorum confirmed it")

        monkeypatch.setattr(dledger.Node, "read", unconfirmed)
        with pytest.raises(dledger.ReadUnavailable, match="no quorum"):
            await watch(client)
        assert (await watch(client, after=put.index - 1)).events  # it is committed in any case


async def test_a_watch_waits_for_a_change_of_its_own_path(tmp_path: Path) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        put = await node.append(b"tea=1")
        got: list[object] = []

        async def wait(*path: str) -> None:
            got.append((await watch(client, *path, after=put.index, wait_ms=20_000)).events)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "books", "tea")
            await node.append(b"milk=1")
            await trio.sleep(0.05)
            assert got == []
            await node.append(b"tea=2")
        assert got == [[ValueSet(put.index + 2, TEA, "2")]]


async def test_a_wait_ends_with_the_word_that_there_was_no_change(tmp_path: Path) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        put = await node.append(b"tea=1")

        async def later() -> None:
            await trio.sleep(0.02)
            await node.append_many([b"milk=1"] * 10)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            answer = await watch(client, "books", "tea", after=put.index, wait_ms=150)
        assert answer == ([], put.index + 10, "n0")


async def test_a_member_that_is_behind_waits_for_the_entry(tmp_path: Path) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        put = await node.append(b"tea=1")
        ahead = put.index + 2
        assert await watch(client, after=ahead, wait_ms=20) == ([], ahead, "n0")
        got: list[object] = []

        async def wait() -> None:
            got.append(await watch(client, after=ahead, wait_ms=20_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            for value in b"234":
                await node.append(b"tea=%c" % value)
        assert got == [([ValueSet(ahead + 1, TEA, "4")], ahead + 1, "n0")]


async def test_changes_that_are_not_kept_any_more_give_the_state(tmp_path: Path) -> None:
    machine = Shelf()
    async with (
        running(tmp_path, machine, watch_history_bytes=3_000) as node,
        connected(node) as client,
    ):
        for number in range(30):
            last = await node.append(b"tea=%d" % number)
        answer = await watch(client, after=0)
        assert answer.events == [WatchedState(last.index, {TEA: "29"})]
        assert (await watch(client, after=last.index - 1)).events == [
            ValueSet(last.index, TEA, "29")
        ]


async def test_a_machine_that_shows_no_state_says_from_where_to_go_on(tmp_path: Path) -> None:
    async with (
        running(tmp_path, Books(), watch_history_bytes=3_000) as node,
        connected(node) as client,
    ):
        for number in range(30):
            last = await node.append(b"tea=%d" % number)
        with pytest.raises(dledger.WatchCompacted) as raised:
            await watch(client, after=0)
        assert raised.value.after == 0
        first = raised.value.first
        assert 0 < first < last.index
        events = (await watch(client, after=first)).events
        assert [event.index for event in events] == list(range(first + 1, last.index + 1))
        with pytest.raises(dledger.WatchInvalid, match="no method watched"):
            await watch(client)


async def test_an_entry_with_too_many_changes_is_a_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Shelf()
    async with (
        running(tmp_path, machine, watch_history_bytes=3_000) as node,
        connected(node) as client,
    ):
        before = await node.append(b"tea=1")
        gap = await node.append(b"&".join(b"b%d=1" % number for number in range(200)))
        answer = await watch(client, "books", "tea", after=before.index)
        assert answer.events == [WatchedState(gap.index, {TEA: "1"})]
        for _ in range(3):
            await node.append(b"&".join(b"b%d=1" % number for number in range(200)))
    told = [record.getMessage() for record in caplog.records if "no watch" in record.getMessage()]
    assert len(told) == 1


async def test_a_member_that_starts_from_a_snapshot_has_the_changes_behind_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, Shelf()) as node:
        config = node.config
        await node.append_many([b"tea=%d" % number for number in range(10)])
        saved = (await node.snapshot()).header.index
        await node.append(b"milk=1")
    async with dledger.open_node(config, Shelf()) as node, connected(node) as client:
        await node.read()
        assert (await watch(client, after=saved)).events == [ValueSet(saved + 1, MILK, "1")]
        answer = await watch(client, after=saved - 1)
        assert answer.events == [WatchedState(answer.upto, {TEA: "9", MILK: "1"})]


async def test_a_snapshot_of_the_leader_begins_the_history_anew_and_wakes_who_waits(
    tmp_path: Path,
) -> None:
    group = Trio(tmp_path)
    both = {name: Shelf() for name in ("n0", "n1")}
    async with group.running(both) as nodes:  # type: ignore[arg-type]  # any machine does
        async with dledger.open_node(group.config("n2"), Shelf()) as node:
            await node.wait_applied((await nodes[0].append(b"tea=1")).index)
        await append_until_compacted(nodes)
        async with (
            dledger.open_node(group.config("n2"), Shelf()) as node,
            connected(node) as client,
        ):
            got: list[Watched] = []

            async def wait() -> None:
                got.append(await watch(client, "films", after=1, wait_ms=20_000))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await until(lambda: node._member.history.begin > 1)  # type: ignore[union-attr]
            (woken,) = got
            begin = woken.upto  # or what was applied since
            assert woken.events == [WatchedState(begin, {})]
            assert begin >= node.status().newest_snapshot > 1
            put = await nodes[0].append(b"tea=2")
            answer = await watch(client, after=begin, wait_ms=20_000)
            assert answer.events[0].index > begin
            await node.wait_applied(put.index)
            last = (await watch(client, *TEA, after=put.index - 1)).events
            assert last == [ValueSet(put.index, TEA, "2")]


async def test_what_a_machine_told_before_it_stopped_at_an_entry_is_not_served(
    tmp_path: Path,
) -> None:
    class Stops(Shelf):
        def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
            for entry in entries:
                if entry.body == b"stop":
                    raise dledger.MachineTooOld(entry.index, "it is newer")
                self.put(entry.index, "tea", "1")
            return [None] * len(entries)

    async with running(tmp_path, Stops()) as node, connected(node) as client:
        put = await node.append(b"x")
        with pytest.raises(dledger.OutcomeUnknown):
            await node.append_many([b"x", b"stop"])
        history = node._member.history
        assert history is not None
        assert history.end == put.index
        with pytest.raises(dledger.ReadUnavailable):
            await watch(client, after=put.index)
        assert history.select(-1, (), 1 << 20).upto == put.index


async def test_a_machine_that_tells_nothing_is_not_watched(tmp_path: Path) -> None:
    async with running(tmp_path, dledger.LogOnly()) as node, connected(node) as client:
        with pytest.raises(dledger.WatchesOff, match=r"dledger\.Changes"):
            await watch(client, after=0)


async def test_a_state_that_no_answer_holds_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, Shelf()) as node, connected(node) as client:
        await node.append(b"&".join(b"b%d=%s" % (number, b"x" * 100) for number in range(50)))
        with monkeypatch.context() as patched:
            patched.setattr(watch_protocol, "MAX_STATE_VALUES", 40)
            with pytest.raises(dledger.WatchTooLarge, match="40 values: watch a narrower path"):
                await watch(client, "books")
            assert (await watch(client, "books", "b7")).events
        monkeypatch.setattr(watch_protocol, "MAX_STATE_BYTES", 1_000)
        with pytest.raises(dledger.WatchTooLarge, match="1000 bytes"):
            await watch(client, "books")


async def test_a_machine_whose_state_cannot_be_shown_fails_its_watches_alone(
    tmp_path: Path,
) -> None:
    class Broken(Shelf):
        shown: object = None

        def watched(self, path: object) -> object:  # type: ignore[override]
            if isinstance(self.shown, Exception):
                raise self.shown
            return self.shown

    machine = Broken()
    async with running(tmp_path, machine) as node, connected(node) as client:
        for machine.shown in (ZeroDivisionError(), [(("a",), object())], [("a", 1)], 5, None):
            with pytest.raises(dledger.WatchInvalid):
                await watch(client)
        machine.shown = []
        assert (await watch(client)).events
        await node.append(b"tea=1")


async def test_watches_are_bounded_on_each_connection_and_at_each_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_server, "MAX_WATCHES_OF_CONNECTION", 3)
    monkeypatch.setattr(served_watches, "MAX_WATCHES", 5)
    refused: list[str] = []
    async with running(tmp_path, Shelf()) as node:
        async with connected(node) as one, connected(node) as two:

            async def wait(client: object) -> None:
                try:
                    await watch(client, after=1_000, wait_ms=30_000)  # type: ignore[arg-type]
                except dledger.TooManyWatches as error:
                    refused.append(error.where)

            async with trio.open_nursery() as nursery:
                for client in (one, one, one, one, two, two, two):
                    nursery.start_soon(wait, client)
                    await trio.sleep(0.01)
                await until(lambda: len(refused) == 2)
                assert refused == ["this connection", "n0"]
                nursery.cancel_scope.cancel()
        await until(lambda: not node.watches._count)


async def test_a_node_that_closes_ends_its_watches(tmp_path: Path) -> None:
    ended: list[BaseException] = []
    async with running(tmp_path, Shelf()) as node:
        client = connected(node)
        connection = await client.__aenter__()

        async def wait(after: int) -> None:
            try:
                await watch(connection, after=after, wait_ms=30_000)
            except dledger.DLedgerError as error:
                ended.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, 0)
            nursery.start_soon(wait, 1_000)
            await trio.sleep(0.05)
            node.stop()
            await until(lambda: len(ended) == 2)
        await client.__aexit__(None, None, None)


async def test_a_whole_dictionary_is_cleared_by_one_change(tmp_path: Path) -> None:
    machine = Objects(prices=ReplicatedDict(), other=ReplicatedDict())
    async with running(tmp_path, machine) as node, connected(node) as client:

        async def call(operation: str, *arguments: object) -> int:
            body = encode_command(Command("prices", operation, arguments))
            return (await node.append(body)).index

        put = await call("update", "tea", [3], b"milk", 4)
        cleared = await call("clear")
        assert (await watch(client, "prices", "tea", after=put - 1)).events == [
            ValueSet(put, ("prices", "tea"), [3]),
            ValueDeleted(cleared, ("prices",)),
        ]
        assert (await watch(client, "other", after=put - 1)).events == []
        assert (await watch(client)).events == [WatchedState(cleared, {})]
