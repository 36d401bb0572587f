"""Queries and watches over the network: against scripted members in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest
import trio
import trio.testing

import dledger
from dledger import blocking, for_asyncio
from dledger.wire.client_protocol import Operation, Request, encode_answer
from dledger.wire.query_protocol import Queried, decode_query, encode_queried
from dledger.wire.watch_protocol import (
    ValueSet,
    WatchedState,
    decode_watch,
    encode_changes,
    encode_state,
)
from tests.dledger.client.fake_member import (
    GROUP,
    Answer,
    FakeGroup,
    FakeMember,
    fake_group,
    silent,
)
from tests.dledger.serving.shelf import Shelf, running

QUIET_S = 0.02
KNOWN = [str(operation) for operation in Operation]


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=QUIET_S)


class History:
    """Changes that scripted members serve: entry 7 sets path ("k",) to 7, and so on."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.begins: dict[str, int] = {}
        self.each = 3  # of one answer
        self.state: dict[str, bool] = {}
        self.asked: list[int | None] = []

    def serve(self, member: FakeMember, *, knows: bool = True) -> None:
        def script(request: Request) -> Answer:
            number = request.request_id
            match request.operation:
                case Operation.STATUS:
                    return encode_answer(number, {"operations": KNOWN} if knows else {})
                case Operation.WATCH if knows:
                    return self._answer(member, request)
                case Operation.QUERY if knows:
                    query = decode_query(request)
                    return encode_queried(
                        number, query.name, Queried(query.arguments, self.last, member.node_id)
                    )
                case _:
                    raise trio.BrokenResourceError  # as a member of an earlier version

        member.script = script

    def _answer(self, member: FakeMember, request: Request) -> Answer:
        number, after = request.request_id, decode_watch(request).after
        self.asked.append(after)
        begin = self.begins.get(member.node_id, -1)
        if after is None or (after < begin and self.state.get(member.node_id)):
            values = [(("k",), self.last)]
            return encode_state(number, ("k",), self.last, values, member.leader)
        if after < begin:
            return dledger.WatchCompacted(after, begin)
        upto = max(after, min(after + self.each, self.last))
        rows = [msgpack.packb([index, ["k"], index]) for index in range(after + 1, upto + 1)]
        return encode_changes(number, rows, upto, member.leader)


def serving(group: FakeGroup, history: History) -> None:
    group.elect(0, term=1)
    for member in group.members:
        history.serve(member)


async def test_a_watch_goes_on_with_another_member_without_a_gap_or_a_repeat(
    clock: trio.testing.MockClock,
) -> None:
    history = History(last=40)
    async with fake_group(3) as group:
        serving(group, history)
        async with dledger.connect(group.peers, group=GROUP) as log:
            got: list[int] = []
            async for event in log.watch("k", after=4):
                got.append(event.index)
                now = next((each for each in group.members if each.open), group[0])
                if event.index % 10 == 9:
                    await now.cut()
                elif event.index == 22:
                    now.frozen = True
                elif event.index == 25:
                    for member in group.members:
                        member.frozen = False
                    group.elect(0, term=2)
                if event.index == 40:
                    break
    assert got == list(range(5, 41))


async def test_a_wait_that_is_cancelled_loses_no_change(clock: trio.testing.MockClock) -> None:
    history = History(last=9)
    async with fake_group(1) as group:
        serving(group, history)
        async with dledger.connect(group.peers, group=GROUP) as log:
            events, got = log.watch("k", after=-1), list[int]()
            for pause_s in itertools.cycle((0.0, 0.005, 0.02)):
                with trio.move_on_after(pause_s):
                    got.append((await anext(events)).index)
                if len(got) == 10:
                    break
    assert got == list(range(10))


async def test_a_quiet_watch_goes_on_behind_what_it_heard_of(clock: trio.testing.MockClock) -> None:
    asked: list[int | None] = []

    def script(request: Request) -> Answer:
        if request.operation is Operation.WATCH and len(asked) >= 4:
            return None
        if request.operation is Operation.STATUS:
            return encode_answer(request.request_id, {"operations": KNOWN})
        asked.append(decode_watch(request).after)
        return encode_changes(request.request_id, [], 100 * len(asked), "n0")

    async with fake_group(1) as group:
        group.elect(0, term=1).script = script
        async with dledger.connect(group.peers, group=GROUP) as log:
            with trio.move_on_after(1.0):
                await anext(log.watch("k", after=5))
    assert asked == [5, 100, 200, 300]


async def test_a_member_that_knows_no_leader_is_left(clock: trio.testing.MockClock) -> None:
    history, old = History(last=9), History(last=3)
    async with fake_group(2) as group:
        serving(group, history)
        group[1].hear(None, 1)
        old.serve(group[1])
        for _ in range(8):  # it begins with either of them
            async with dledger.connect(group.peers, group=GROUP) as log:
                with trio.fail_after(30.0):
                    events = log.watch("k", after=-1)
                    assert [(await anext(events)).index for _ in range(10)] == list(range(10))
        assert old.asked


async def test_changes_that_one_member_has_no_more_another_one_may_have(
    clock: trio.testing.MockClock,
) -> None:
    history = History(last=20)
    async with fake_group(3) as group:
        serving(group, history)
        history.begins.update(n0=10, n1=15, n2=5)
        for _ in range(5):
            async with dledger.connect(group.peers, group=GROUP) as log:
                assert await anext(log.watch("k", after=7)) == ValueSet(8, ("k",), 8, more=False)
        async with dledger.connect(group.peers, group=GROUP) as log:
            with pytest.raises(dledger.WatchCompacted) as raised:
                await anext(log.watch("k", after=3))
            assert raised.value.after == 3
            events = log.watch("k", after=raised.value.first)
            assert (await anext(events)).index == raised.value.first + 1


async def test_a_state_comes_in_place_of_changes_and_the_watch_goes_on_behind_it(
    clock: trio.testing.MockClock,
) -> None:
    history = History(last=20)
    async with fake_group(1) as group:
        serving(group, history)
        history.begins["n0"], history.state["n0"] = 15, True
        async with dledger.connect(group.peers, group=GROUP) as log:
            events = log.watch("k", after=3)
            assert await anext(events) == WatchedState(20, {("k",): 20})
            history.last = 21
            assert (await anext(events)).index == 21


async def test_a_member_of_an_earlier_version_keeps_its_connection_and_another_one_answers(
    clock: trio.testing.MockClock,
) -> None:
    history = History(last=9)
    async with fake_group(2) as group:
        serving(group, history)
        history.serve(group[1], knows=False)
        while not group[1].asked:
            async with dledger.connect(group.peers, group=GROUP) as log:
                assert (await anext(log.watch("k", after=-1))).index == 0
                assert (await log.query("q", stale=True)).member == "n0"
        assert {request.operation for request in group[1].asked} == {Operation.STATUS}
        async with dledger.connect(group.peers, group=GROUP) as log:
            with pytest.raises(dledger.OperationUnknown, match=r"n1 does not know .*upgrade it"):
                await log.query("q", on="n1")
        group.elect(1, term=2)
        async with dledger.connect(group.peers, group=GROUP) as log:
            with pytest.raises(dledger.OperationUnknown) as raised:
                await log.query("q")
            assert (raised.value.member, raised.value.operation) == ("n1", "query")
        history.serve(group[0], knows=False)
        async with dledger.connect(group.peers, group=GROUP) as log:
            with pytest.raises(dledger.OperationUnknown):
                await anext(log.watch("k", after=-1))


async def test_what_every_member_says_of_a_watch_is_raised_at_once(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(2) as group:
        group.elect(0, term=1)
        for error in (
            dledger.WatchTooLarge("('k',)", 5, "values"),
            dledger.WatchInvalid("no"),
            dledger.WatchesOff(),
            dledger.TooManyWatches(5, "n0"),
        ):
            for member in group.members:
                member.script = lambda request, error=error: (  # type: ignore[misc]
                    encode_answer(request.request_id, {"operations": KNOWN})
                    if request.operation is Operation.STATUS
                    else error
                )
            async with dledger.connect(group.peers, group=GROUP) as log:
                with trio.fail_after(5.0), pytest.raises(type(error)) as raised:
                    await anext(log.watch("k"))
            assert raised.value == error


@pytest.mark.parametrize(
    "answer",
    [
        (None, b""),
        ([0, 9], b""),
        ([7, 9, "n0"], b""),
        ([0, 1, "n0"], b""),  # behind what was asked for
        ([0, 2**63, "n0"], b""),
        ([0, 9, "n0"], b"\xc1"),
        ([0, 9, "n0"], msgpack.packb([9, ["k"], 1])[:-1]),
        ([0, 9, "n0"], msgpack.packb([10, ["k"], 1])),
        ([0, 9, "n0"], msgpack.packb([5, ["k"], 1])),
        ([0, 9, "n0"], msgpack.packb([8, ["k"], 1]) + msgpack.packb([7, ["k"], 1])),
        ([0, 9, "n0"], msgpack.packb([8, [True], 1])),
        ([0, 9, "n0"], msgpack.packb([8, "k", 1])),
        ([1, 9, "n0"], msgpack.packb(["k"])),
        ([1, 9, "n0"], msgpack.packb([1.5]) + b"\xc0"),
    ],
)
async def test_an_answer_that_is_none_is_asked_of_another_member(
    answer: tuple[object, bytes], clock: trio.testing.MockClock
) -> None:
    history = History(last=9)
    async with fake_group(2) as group:
        serving(group, history)
        served = group[0].script

        def script(request: Request) -> Answer:
            if request.operation is Operation.WATCH:
                return encode_answer(request.request_id, *answer)
            return served(request)

        group[1].script = script
        while Operation.WATCH not in [request.operation for request in group[1].asked]:
            async with dledger.connect(group.peers, group=GROUP) as log:
                with trio.fail_after(20.0):
                    assert (await anext(log.watch("k", after=5))).index == 6


async def test_a_path_that_cannot_be_is_refused_at_once() -> None:
    async with dledger.connect("127.0.0.1:1", group=GROUP) as log:
        wrong: list[tuple[object, ...]] = [(1.5,), (True,), ("x" * 9_000,), ("x",) * 17, (2**70,)]
        for path in wrong:
            with pytest.raises(dledger.WatchInvalid):
                log.watch(*path)  # type: ignore[arg-type]
        with pytest.raises(dledger.WatchInvalid):
            log.watch("k", after=2**63)


async def test_queries_of_silent_members_end_with_their_time(clock: trio.testing.MockClock) -> None:
    async with fake_group(2) as group:
        group.elect(0, term=1)
        for member in group.members:
            member.script = silent
        async with dledger.connect(group.peers, group=GROUP) as log:
            calls: list[Callable[[], object]] = [
                lambda: log.query("q", timeout_s=3.0),
                lambda: log.query("q", stale=True, timeout_s=3.0),
                lambda: log.query("q", max_lag_s=float("inf"), timeout_s=3.0),
                lambda: log.query("q", on="n1", timeout_s=3.0),
            ]
            for call in calls:
                began = trio.current_time()
                with pytest.raises(dledger.GroupUnreachable, match="within 3 s"):
                    await call()  # type: ignore[misc]
                assert 2.9 < trio.current_time() - began < 3.5
            with pytest.raises(dledger.GroupUnreachable, match="not one of the members"):
                await log.query("q", on="n9")


async def test_a_read_that_a_member_cannot_serve_is_tried_on(clock: trio.testing.MockClock) -> None:
    history = History(last=5)
    async with fake_group(1) as group:
        serving(group, history)
        served, refusals = group[0].script, [dledger.ReadUnavailable("it is new")] * 3

        def script(request: Request) -> Answer:
            if request.operation in (Operation.QUERY, Operation.WATCH) and refusals:
                return refusals.pop()
            return served(request)

        group[0].script = script
        async with dledger.connect(group.peers, group=GROUP) as log:
            for call in (
                lambda: log.query("q"),
                lambda: log.query("q", stale=True),
                lambda: log.query("q", on="n0"),
                lambda: anext(log.watch("k", after=3)),
            ):
                refusals[:] = [dledger.ReadUnavailable("it is new")] * 3
                await call()
                assert not refusals


# --- the other forms, at a real group -------------------------------------------------------------


def by_blocking(peers: dict[str, str]) -> list[object]:
    with blocking.connect(peers, group="g") as log:
        index = log.append(b"tea=1").index
        told: list[object] = [
            log.query("get", "tea").result,
            log.query_soon("get", "tea").result().result,
            *itertools.islice(log.watch("books", "tea", after=index - 1), 1),
        ]
    with blocking.open_group("g", peers) as client:
        told.append(client.query("get", "tea", on="n0", stale=True).result)
        with client.watch("books", "tea") as events:
            told.append(next(iter(events)))
    return told


def by_asyncio(peers: dict[str, str]) -> list[object]:
    async def call() -> list[object]:
        async with for_asyncio.connect(peers, group="g") as log:
            index = (await log.append(b"tea=1")).index
            told: list[object] = [(await log.query("get", "tea")).result] * 2
            told.append(await anext(aiter(log.watch("books", "tea", after=index - 1))))
        async with for_asyncio.open_group("g", peers) as client:
            told.append((await client.query("get", "tea", on="n0", stale=True)).result)
            async with client.watch("books", "tea") as events:
                told.append(await anext(aiter(events)))
        return told

    return asyncio.run(call())


@pytest.mark.parametrize("form", [by_blocking, by_asyncio])
async def test_all_forms_query_and_watch(
    form: Callable[[dict[str, str]], list[object]], tmp_path: Path
) -> None:
    path = ("books", "tea")
    async with running(tmp_path, dledger.WithSessions(Shelf())) as node:
        told = await trio.to_thread.run_sync(form, dict(node.config.peers))
        last = node.status().applied
    assert told == ["1", "1", ValueSet(last, path, "1"), "1", WatchedState(last, {path: "1"})]
