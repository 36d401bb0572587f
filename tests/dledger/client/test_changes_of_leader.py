"""Each call of each form of client goes on with the next leader, whatever the last one says."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable

import msgpack
import pytest
import trio
import trio.testing

import dledger
from dledger import blocking, for_asyncio
from dledger.client.group_client import GroupClient
from dledger.client.remote_log import RemoteLog
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import encode_configuration
from dledger.entry import Entry, Magic
from dledger.errors import DLedgerError, LeadershipMoving, NodeClosing, NotLeader
from dledger.sessions.session import Session
from dledger.sessions.with_sessions import AnswerKind, SessionAnswer
from dledger.wire.client_protocol import Operation, Request, encode_answer, encode_entries
from dledger.wire.query_protocol import Queried, encode_queried
from dledger.wire.session_protocol import SESSION_OPERATIONS, encode_session_answers
from dledger.wire.watch_protocol import encode_changes
from tests.dledger.client.fake_member import GROUP, Answer, FakeGroup, appended, fake_group

# What a leader answers that is deposed, hands over or stops: nothing was done.
WORDS: dict[str, DLedgerError] = {
    "not the leader": NotLeader("n1", 2),
    "hands over": LeadershipMoving("n1", 1),
    "closes": NodeClosing(),
}
NIL = b"\xc0"  # a packed result
ALONE = Configuration(voters=frozenset({"n1"}), addresses={"n1": "127.0.0.1:1"})


def serving(request: Request) -> Answer:
    """What a leader answers that serves."""
    number = request.request_id
    match request.operation:
        case Operation.CHANGE:
            return encode_answer(number, None, encode_configuration(7, ALONE))
        case Operation.TRANSFER:
            return encode_answer(number, "n2")
        case Operation.ENTRIES:
            return encode_entries(number, [Entry(3, 1, 0, Magic.NORMAL, b"x")])
        case Operation.STATUS:
            known = [str(operation) for operation in Operation]
            return encode_answer(number, {"first_index": 3, "committed": 3, "operations": known})
        case Operation.QUERY:
            return encode_queried(number, "q", Queried(1, 3, "n1"))
        case Operation.WATCH:
            return encode_changes(number, [msgpack.packb([3, ["k"], 1])], 3, "n1")
        case operation if operation in SESSION_OPERATIONS:
            return encode_session_answers(number, [SessionAnswer(AnswerKind.APPLIED, 5, NIL)])
        case _:
            return appended(request)


async def depose(group: FakeGroup, word: DLedgerError) -> None:
    """n0 leads, and refuses the first request with `word`; a moment later n1 leads."""

    def refuse(request: Request) -> DLedgerError:
        refused.set()
        return word

    refused = trio.Event()
    group.elect(0, term=1).script = refuse
    group[1].script = serving
    await refused.wait()
    await trio.sleep(0.1)
    group[0].script = lambda _: NotLeader("n1", 2)
    group.elect(1, term=2)


async def in_session(session: Session) -> None:
    await session.append(b"x")


async def log_session(log: RemoteLog) -> None:
    async with log.session() as session:
        await in_session(session)


async def client_session(client: GroupClient) -> None:
    async with client.session() as session:
        await in_session(session)


async def ends_with_the_commit(entries: AsyncIterator[Entry]) -> None:
    await anext(entries)


async def one_event(events: AsyncIterator[object]) -> None:
    await anext(events)


REMOTE_LOG: dict[str, Callable[[RemoteLog], Awaitable[object]]] = {
    "append": lambda log: log.append(b"x"),
    "append_many": lambda log: log.append_many([b"x", b"y"]),
    "session": log_session,
    "read": lambda log: log.read(3),
    "tail": lambda log: ends_with_the_commit(aiter(log.tail(3, follow=False))),
    "query": lambda log: log.query("q"),
    "status": lambda log: log.status(),
    "ask_leader": lambda log: log.ask_leader(Operation.STATUS, (), b"", None),
    "ask_leader_long": lambda log: log.ask_leader_long(Operation.TRANSFER, (), b"", 10.0),
}
GROUP_CLIENT: dict[str, Callable[[GroupClient], Awaitable[object]]] = {
    "append": lambda client: client.append([b"x"], 10.0),
    "session": client_session,
    "transfer": lambda client: client.transfer(None, 10.0),
    "change": lambda client: client.change([dledger.Remove("n0")]),
    "leader_status": lambda client: client.leader_status(10.0),
    "query": lambda client: client.query("q"),
}
# These ask one member that the caller names, or all of them: they follow no leader.
OF_A_MEMBER = {"status", "snapshot", "entries", "ask_members", "ready_leader"}
# Any member answers these: a refusal by one of them has the next one asked.
OF_ANY_MEMBER: dict[str, Callable[[RemoteLog], Awaitable[object]]] = {
    "watch": lambda log: one_event(log.watch("k", after=2)),
    "tail": lambda log: ends_with_the_commit(aiter(log.tail(3))),
    "stale query": lambda log: log.query("q", stale=True),
}


def calls_of(kind: type) -> set[str]:
    """The public methods of a class."""
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


def test_no_call_is_left_out() -> None:
    assert calls_of(RemoteLog) == set(REMOTE_LOG) | {"watch"}
    assert calls_of(GroupClient) == set(GROUP_CLIENT) | OF_A_MEMBER | {"watch"}
    assert calls_of(blocking.BlockingLog) == set(BLOCKING_LOG) | {"watch"}
    assert calls_of(for_asyncio.AsyncioLog) == set(ASYNCIO_LOG) | {"watch"}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", OF_ANY_MEMBER)
async def test_what_one_member_refuses_another_one_answers(
    word: str, name: str, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with fake_group(2) as group:
        group.elect(1, term=1).script = serving
        group[0].script = lambda _: WORDS[word]
        while not group[0].asked:  # the client asks one of them, by chance
            async with dledger.connect(group.peers, group=GROUP) as log:
                with trio.fail_after(9.0):
                    await OF_ANY_MEMBER[name](log)


@pytest.mark.parametrize("word", WORDS)
async def test_each_call_of_a_log_goes_on_with_the_next_leader(
    word: str, autojump_clock: trio.testing.MockClock
) -> None:
    async def call(name: str) -> None:
        async with fake_group(2) as group, dledger.connect(group.peers, group=GROUP) as log:
            with trio.fail_after(9.0):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(depose, group, WORDS[word])
                    await REMOTE_LOG[name](log)
            assert group[1].asked, name

    autojump_clock.autojump_threshold = 0.02
    for name in REMOTE_LOG:
        await call(name)


@pytest.mark.parametrize("word", WORDS)
async def test_each_call_of_a_client_goes_on_with_the_next_leader(
    word: str, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.02
    for name, call in GROUP_CLIENT.items():
        async with fake_group(2) as group:
            client = GroupClient(GROUP, group.peers)
            with trio.fail_after(9.0):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(depose, group, WORDS[word])
                    await call(client)
            assert group[1].asked, name


async def test_a_change_that_may_have_been_made_is_not_made_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with fake_group(1) as group:
        group.elect(0, term=1).script = lambda _: dledger.LeadershipLost(7, 1, None)
        with pytest.raises(dledger.LeadershipLost):
            await GroupClient(GROUP, group.peers).change([dledger.Remove("n0")])
        assert len(group[0].asked) == 1


async def test_a_change_that_no_leader_takes_in_its_time_says_what_the_last_one_said(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with fake_group(1) as group:
        group.elect(0, term=1).script = lambda _: LeadershipMoving("n1", 1)
        with trio.fail_after(6.0), pytest.raises(LeadershipMoving):
            await GroupClient(GROUP, group.peers).change([dledger.Remove("n0")], timeout_s=3.0)


# --- the forms for other programs: in real time, since their loops run in threads -----------------


def blocking_session(log: blocking.BlockingLog) -> None:
    with log.session() as session:
        session.append(b"x")


async def asyncio_session(log: for_asyncio.AsyncioLog) -> None:
    async with log.session() as session:
        await session.append(b"x")


BLOCKING_LOG: dict[str, Callable[[blocking.BlockingLog], object]] = {
    "append": lambda log: log.append(b"x"),
    "append_soon": lambda log: log.append_soon(b"x").result(),
    "append_many": lambda log: log.append_many([b"x"]),
    "append_many_soon": lambda log: log.append_many_soon([b"x"]).result(),
    "read": lambda log: log.read(3),
    "read_soon": lambda log: log.read_soon(3).result(),
    "tail": lambda log: next(log.tail(3, follow=False)),
    "query": lambda log: log.query("q"),
    "query_soon": lambda log: log.query_soon("q").result(),
    "status": lambda log: log.status(),
    "session": blocking_session,
}
ASYNCIO_LOG: dict[str, Callable[[for_asyncio.AsyncioLog], Awaitable[object]]] = {
    "append": lambda log: log.append(b"x"),
    "append_many": lambda log: log.append_many([b"x"]),
    "read": lambda log: log.read(3),
    "tail": lambda log: ends_with_the_commit(aiter(log.tail(3, follow=False))),
    "query": lambda log: log.query("q"),
    "status": lambda log: log.status(),
    "session": asyncio_session,
}


def by_blocking(peers: dict[str, str], name: str) -> None:
    with blocking.connect(peers, group=GROUP) as log:
        BLOCKING_LOG[name](log)


def by_asyncio(peers: dict[str, str], name: str) -> None:
    async def call() -> None:
        async with for_asyncio.connect(peers, group=GROUP) as log:
            await ASYNCIO_LOG[name](log)

    asyncio.run(call())


@pytest.mark.parametrize(
    ("form", "names"), [(by_blocking, [*BLOCKING_LOG]), (by_asyncio, [*ASYNCIO_LOG])]
)
async def test_each_call_of_the_other_forms_goes_on_with_the_next_leader(
    form: Callable[[dict[str, str], str], None], names: list[str]
) -> None:
    async def call(name: str) -> None:
        async with fake_group(2) as group, trio.open_nursery() as nursery:
            nursery.start_soon(depose, group, WORDS["not the leader"])
            await trio.to_thread.run_sync(form, group.peers, name)
            assert group[1].asked, name

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(call, name)
