"""Replicated objects: the state machine alone, and over a real node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgpack
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from trio.testing import MockClock

import dledger
from dledger.entry import Entry, Magic
from dledger.free_ports import free_ports
from dledger.machines import (
    CommandRefused,
    Holding,
    LockCalls,
    LockLost,
    LockNotAcquired,
    Objects,
    ReplicatedCounter,
    ReplicatedDict,
    ReplicatedLocks,
    ReplicatedQueue,
)
from dledger.machines.command import MAX_KEY_BYTES, Command, encode_command, unpack_answer
from dledger.machines.lock_sight import LockSight
from dledger.machines.replicated import CHUNK_BYTES
from dledger.sessions.session_entry import AppendInSession
from dledger.sessions.session_entry import encode_command as encode_command_of_session
from dledger.sessions.session_table import SessionLimits

# The map {[]: 0}: msgpack has such maps, Python has none.
LIST_AS_KEY = b"\x81\x90\x00"


def entry(index: int, body: bytes) -> Entry:
    return Entry(index, 1, index * 100, int(Magic.NORMAL), body)


class Applied(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index
    result: object


class OneMember:
    """A group of one without a log: an append is applied at once. `before` may lose it."""

    def __init__(self, machine: Objects) -> None:
        self.machine = machine
        self.index = 0
        self.before: Callable[[bytes], None] = lambda body: None

    async def append(self, body: bytes) -> Applied:
        await trio.lowlevel.checkpoint()
        self.before(body)
        self.index += 1
        return Applied(self.index, self.machine.apply([entry(self.index, body)])[0])


class ShownLog:
    """A member whose log can be read: by a session's envelopes, or plain."""

    def __init__(self, member: OneMember, *, in_sessions: bool = False) -> None:
        self.member = member
        self.in_sessions = in_sessions
        self.entries: list[Entry] = []
        self.more = trio.Event()
        self.reads = 0

    async def append(self, body: bytes) -> Applied:
        applied = await self.member.append(body)
        command = AppendInSession(7, len(self.entries) + 1, 0, [body])
        written = encode_command_of_session(command, 0, SessionLimits())[0]
        self.entries.append(entry(applied.index, written if self.in_sessions else body))
        self.more.set()
        self.more = trio.Event()
        return applied

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        self.reads += 1
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(wait_s):
            while not self.entries or self.entries[-1].index < first:
                await self.more.wait()
        return [each for each in self.entries if each.index >= first]


class World:
    def __init__(self) -> None:
        self.values = ReplicatedDict()
        self.count = ReplicatedCounter()
        self.jobs = ReplicatedQueue()
        self.locks = ReplicatedLocks()
        self.machine = Objects(
            values=self.values, count=self.count, jobs=self.jobs, locks=self.locks
        )
        self.member = OneMember(self.machine)


# --- what each object does ------------------------------------------------------------------------


async def test_a_dictionary_is_set_read_and_emptied() -> None:
    world = World()
    calls = world.values.through(world.member)
    await calls.set("tea", {"price": 3})
    await calls.update({1: "one", b"\x00": [1, 2]})
    assert dict(world.values) == {"tea": {"price": 3}, 1: "one", b"\x00": [1, 2]}
    assert await calls.get("tea") == {"price": 3}
    assert await calls.pop(1) == "one"
    assert await calls.pop(1, "gone") == "gone"
    await calls.clear()
    assert len(world.values) == 0


async def test_compare_and_set_changes_only_what_was_expected() -> None:
    world = World()
    calls = world.values.through(world.member)
    assert await calls.add("leader", "a")
    assert not await calls.add("leader", "b")
    assert not await calls.replace("leader", "b", "c")
    assert await calls.replace("leader", "a", "c")
    assert not await calls.remove("leader", "a")
    assert await calls.remove("leader", "c")
    assert "leader" not in world.values


async def test_what_is_read_from_a_dictionary_is_a_copy() -> None:
    world = World()
    await world.values.through(world.member).set("list", [1])
    found = world.values["list"]
    assert isinstance(found, list)
    found.append(2)
    assert world.values["list"] == [1]


async def test_a_counter_adds_up_and_stays_within_64_bits() -> None:
    world = World()
    calls = world.count.through(world.member)
    assert await calls.add(5) == 5
    assert await calls.add(-7) == -2
    await calls.set(2**63 - 1)
    with pytest.raises(CommandRefused, match="64 bits"):
        await calls.add(1)
    assert await calls.get() == world.count.value == 2**63 - 1


async def test_a_queue_gives_each_item_once_in_order() -> None:
    world = World()
    calls = world.jobs.through(world.member)
    assert await calls.put("a", "b", "c") == 3
    assert await calls.take(2) == ["a", "b"]
    assert list(world.jobs) == ["c"]
    assert await calls.take(5) == ["c"]
    assert await calls.take() == []


# --- what is not a command ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"hello",
        LIST_AS_KEY,
        msgpack.packb(7),
        msgpack.packb(["count"]),
        msgpack.packb([1, 2]),
        encode_command(Command("nobody", "add", [1])),
        encode_command(Command("count", "fly", [])),
        encode_command(Command("count", "add", ["1"])),
        encode_command(Command("count", "add", [True])),
        encode_command(Command("count", "add", [1, 2])),
        encode_command(Command("values", "update", ["key"])),
        encode_command(Command("values", "update", [[1], 2])),
        encode_command(Command("values", "update", ["x" * (MAX_KEY_BYTES + 1), 2])),
        encode_command(Command("values", "replace", ["key", 1, 2])),
        encode_command(Command("jobs", "take", [0])),
        encode_command(Command("locks", "acquire", ["l", "h", 0])),
        encode_command(Command("locks", "acquire", ["l", 5, 10])),
    ],
)
def test_an_entry_that_asks_for_nothing_sensible_is_refused_and_changes_nothing(
    body: bytes,
) -> None:
    world = World()
    before = list(world.machine.snapshot())
    with pytest.raises(CommandRefused):
        unpack_answer(world.machine.apply([entry(1, body)])[0])
    assert list(world.machine.snapshot()) == before


def test_a_tuple_as_a_key_is_refused_before_it_is_in_the_log() -> None:
    with pytest.raises(TypeError, match="tuples come back as lists"):
        encode_command(Command("values", "update", ["key", {(1, 2): 3}]))


@given(st.binary(max_size=64))
@example(LIST_AS_KEY)
def test_no_entry_stops_the_state_machine(body: bytes) -> None:
    world = World()
    assert len(world.machine.apply([entry(1, body)])) == 1


# --- snapshots ------------------------------------------------------------------------------------


async def test_a_snapshot_holds_all_objects_as_they_were() -> None:
    world = World()
    await world.values.through(world.member).update(dict.fromkeys(range(1000), "x" * 5000))
    await world.count.through(world.member).add(3)
    await world.jobs.through(world.member).put(1, [2])
    async with LockCalls(world.locks, world.member).hold("door"):
        held = world.locks.holding("door")
        chunks = world.machine.snapshot()
    await world.count.through(world.member).add(3)

    other = World()
    saved = list(chunks)
    assert max(map(len, saved)) < CHUNK_BYTES + 10_000
    other.machine.restore(iter(saved))
    assert dict(other.values) == dict(world.values)
    assert other.count.value == 3
    assert list(other.jobs) == [1, [2]]
    assert other.locks.holding("door") == held
    assert other.machine.snapshot_format == world.machine.snapshot_format


def test_a_snapshot_of_other_objects_is_not_taken() -> None:
    chunks = Objects(strange=ReplicatedCounter()).snapshot()
    with pytest.raises(ValueError, match="strange"):
        World().machine.restore(iter(list(chunks)))


@pytest.mark.parametrize("chunk", [LIST_AS_KEY, b"\x90"])
def test_a_snapshot_of_something_else_is_not_taken(chunk: bytes) -> None:
    with pytest.raises(ValueError, match=r"not one of objects|which this state"):
        World().machine.restore(iter([chunk]))


class DictionaryLikeAnyOther(RuleBasedStateMachine):
    """A replicated dictionary against a plain one, with a restart from a snapshot at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.model: dict[object, object] = {}
        self.index = 0

    def ask(self, operation: str, *arguments: object) -> object:
        self.index += 1
        body = encode_command(Command("values", operation, arguments))
        return unpack_answer(self.world.machine.apply([entry(self.index, body)])[0])

    keys = st.one_of(st.integers(0, 3), st.sampled_from(["a", b"a"]))
    values = st.one_of(st.none(), st.integers(0, 2), st.lists(st.text(max_size=1), max_size=2))

    @rule(key=keys, value=values)
    def set_one(self, key: object, value: object) -> None:
        self.ask("update", key, value)
        self.model[key] = value

    @rule(key=keys)
    def pop_one(self, key: object) -> None:
        found = [self.model.pop(key)] if key in self.model else []
        assert self.ask("pop", key) == found

    @rule(key=keys, expected=values, value=values)
    def replace_one(self, key: object, expected: object, value: object) -> None:
        fits = key in self.model and self.model[key] == expected
        assert self.ask("replace", key, [expected], [value]) is fits
        if fits:
            self.model[key] = value

    @rule()
    def restart(self) -> None:
        chunks = list(self.world.machine.snapshot())
        self.world = World()
        self.world.machine.restore(iter(chunks))

    @invariant()
    def equal(self) -> None:
        assert dict(self.world.values) == self.model


test_a_dictionary_is_like_any_other = DictionaryLikeAnyOther.TestCase


# --- locks ----------------------------------------------------------------------------------------


async def test_a_lock_has_one_holder_and_tokens_that_grow(autojump_clock: object) -> None:
    world = World()
    calls = LockCalls(world.locks, world.member)
    tokens = []
    inside = 0

    async def worker() -> None:
        nonlocal inside
        async with calls.hold("door", lease_s=5) as token:
            inside += 1
            assert inside == 1
            await trio.sleep(12)  # longer than the lease: it is renewed
            tokens.append(token)
            inside -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(worker)
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 3
    assert world.locks.holding("door") is None


async def test_a_lock_of_a_holder_that_is_gone_is_taken_after_its_lease(
    autojump_clock: object,
) -> None:
    world = World()
    await LockCalls("locks", world.member)._call("acquire", "door", "gone", 5_000)
    began = trio.current_time()
    async with LockCalls("locks", world.member).hold("door", lease_s=5):
        assert 5 <= trio.current_time() - began <= 6


async def test_who_waits_for_a_lock_does_not_count_the_time_for_which_it_was_paused(
    mock_clock: MockClock,
) -> None:
    world = World()
    await LockCalls("locks", world.member)._call("acquire", "door", "paused as well", 5_000)
    taken_at: list[float] = []

    async def wait() -> None:
        async with LockCalls("locks", world.member).hold("door", lease_s=5):
            taken_at.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(60.0)
        went_on_at = trio.current_time()
        mock_clock.autojump_threshold = 0.0
    assert taken_at[0] - went_on_at >= 4.0


async def test_a_block_is_cancelled_before_anybody_else_can_have_its_lock(
    autojump_clock: object,
) -> None:
    world = World()
    cut_off = OneMember(world.machine)

    def lose(body: bytes) -> None:
        raise dledger.ReadUnavailable("cut off")

    left_at = entered_at = 0.0

    async def stays_inside() -> None:
        async with LockCalls("locks", cut_off).hold("door", lease_s=5):
            cut_off.before = lose
            await trio.sleep_forever()

    async def loses_it() -> None:
        nonlocal left_at
        with pytest.raises(LockLost, match="door"):
            await stays_inside()
        left_at = trio.current_time()

    async def gets_it() -> None:
        nonlocal entered_at
        await trio.sleep(0.1)
        async with LockCalls("locks", world.member).hold("door", lease_s=5):
            entered_at = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(loses_it)
        nursery.start_soon(gets_it)
    assert 0 < left_at < entered_at


async def test_a_lock_that_was_taken_away_ends_its_block(autojump_clock: object) -> None:
    world = World()
    calls = LockCalls("locks", world.member)

    async def hold_it() -> None:
        async with calls.hold("door", lease_s=5):
            held = world.locks.holding("door")
            assert isinstance(held, Holding)
            assert await calls._call("expire", "door", held.token, held.beat)
            await trio.sleep_forever()

    with pytest.raises(LockLost):
        await hold_it()


@pytest.mark.parametrize("in_sessions", [False, True])
async def test_clients_that_wait_for_a_lock_append_nothing_while_it_is_held(
    in_sessions: bool, autojump_clock: object
) -> None:
    world = World()
    log = ShownLog(world.member, in_sessions=in_sessions)
    held: list[int] = []

    async def worker() -> None:
        async with LockCalls("locks", log).hold("door", lease_s=3) as token:
            held.append(token)
            await trio.sleep(300)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(worker)
        await trio.sleep(10)
        before, reads = len(log.entries), log.reads
        await trio.sleep(100)
        assert len(log.entries) - before == 100  # a renewal a second, by the holder alone
        # The waiters read each, and look at the time ten times in a lease while they wait.
        assert log.reads - reads <= 5 * (1 + 10 / 3) * 100
        await trio.sleep(200)  # the first one has given it back
        assert len(held) == 2
        nursery.cancel_scope.cancel()


async def test_a_waiting_client_takes_a_lock_at_once_when_it_is_given_back(
    autojump_clock: object,
) -> None:
    world = World()
    log = ShownLog(world.member)
    first = LockCalls("locks", log)

    async def waits() -> None:
        async with LockCalls("locks", log).hold("door", lease_s=60):
            took_at.append(trio.current_time())

    took_at: list[float] = []
    async with trio.open_nursery() as nursery:
        async with first.hold("door", lease_s=60):
            nursery.start_soon(waits)
            await trio.sleep(10)
        left_at = trio.current_time()
    assert took_at[0] - left_at < 0.01


async def test_a_waiting_client_that_reads_the_log_ends_the_lock_of_a_holder_that_is_gone(
    autojump_clock: object,
) -> None:
    world = World()
    log = ShownLog(world.member)
    gone = LockCalls("locks", log)
    await gone._call("acquire", "door", "gone", 5_000)

    async def renews_twice() -> None:
        for _ in range(2):
            await trio.sleep(2)
            await gone._call("renew", "door", "gone")

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(renews_twice)
        async with LockCalls("locks", log).hold("door", lease_s=5):
            assert 9 <= trio.current_time() - began <= 10


async def test_a_waiting_client_asks_again_where_the_log_has_moved_on(
    autojump_clock: object,
) -> None:
    world = World()
    log = ShownLog(world.member)
    calls = LockCalls("locks", log)
    await calls._call("acquire", "door", "gone", 5_000)

    async def compacted(first: int, wait_s: float) -> list[Entry]:
        raise dledger.OutsideLog("entry", first, first + 9, first + 20)

    log.entries_from = compacted  # type: ignore[method-assign]
    began = trio.current_time()
    async with LockCalls("locks", log).hold("door", lease_s=5):
        assert 5 <= trio.current_time() - began <= 6


def test_only_what_may_end_a_lock_ends_the_wait_for_it() -> None:
    sight = LockSight("locks", "door", Holding(4, "me", 5_000, 2))

    def ends(*parts: object, name: str = "locks") -> bool:
        operation, *arguments = parts
        return sight.ends_by(entry(9, encode_command(Command(name, str(operation), arguments))))

    assert not ends("acquire", "door", "other", 5_000)
    assert not ends("release", "door", "other")
    assert not ends("release", "gate", "me")
    assert not ends("expire", "door", 4, 1)
    assert not ends("release", "door", "me", name="others")
    assert not sight.ends_by(entry(9, b"not a command"))
    assert not sight.ends_by(Entry(9, 1, 900, int(Magic.NOOP), b""))
    assert not ends("renew", "door", "other")
    assert sight.holding.beat == 2
    assert not ends("renew", "door", "me")
    assert sight.holding.beat == 3
    assert not ends("expire", "door", 4, 2)
    assert ends("expire", "door", 4, 3)
    assert ends("release", "door", "me")


async def test_ending_a_lock_that_was_renewed_meanwhile_does_nothing() -> None:
    world = World()
    calls = LockCalls("locks", world.member)
    seen = Holding(*await calls._call("acquire", "door", "me", 1_000))  # type: ignore[misc]
    assert await calls._call("renew", "door", "me")
    assert not await calls._call("expire", "door", seen.token, seen.beat)
    assert not await calls._call("release", "door", "another")
    assert world.locks.holding("door") == seen._replace(beat=1)


async def test_waiting_for_a_lock_ends_with_its_time(autojump_clock: object) -> None:
    world = World()
    calls = LockCalls("locks", world.member)
    async with calls.hold("door", lease_s=30):
        with pytest.raises(LockNotAcquired):
            async with calls.hold("door", lease_s=30, timeout_s=2):
                pytest.fail("two holders")
        assert world.locks.holding("door") is not None


async def test_an_exception_in_the_block_comes_out_as_itself_and_gives_the_lock_back(
    autojump_clock: object,
) -> None:
    world = World()
    with pytest.raises(KeyError):
        async with LockCalls(world.locks, world.member).hold("door"):
            raise KeyError("mine")
    assert world.locks.holding("door") is None


# --- over a real node -----------------------------------------------------------------------------


async def test_objects_survive_a_restart_of_their_node(tmp_path: Path) -> None:
    config = dledger.NodeConfig(
        group="objects",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{free_ports(1)[0]}"},
        data_dir=tmp_path,
        store=dledger.StoreConfig(segment_bytes=8 << 20, index_segment_bytes=1 << 16),
        new=True,
    )
    first = World()
    async with (
        dledger.open_node(config, dledger.WithSessions(first.machine)) as node,
        node.session() as session,
    ):
        await first.values.through(session).set("tea", 3)
        assert await first.values.through(session).get("tea") == 3
        assert await first.count.through(session).add(2) == 2
        assert await first.count.through(node).add(2) == 4
        assert await first.jobs.through(session).put("job") == 1
        await node.snapshot()
        assert await first.jobs.through(session).take() == ["job"]
        async with LockCalls(first.locks, session).hold("door") as token:
            assert token > 0
    second = World()
    async with dledger.open_node(config, dledger.WithSessions(second.machine)) as node:
        await node.read()
        assert second.values["tea"] == 3
        assert second.count.value == 4
        assert len(second.jobs) == 0
        assert second.locks.holding("door") is None
