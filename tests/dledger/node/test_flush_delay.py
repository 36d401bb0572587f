"""Entries that count before they are synced: what a power cut may take, and what it may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

import dledger
from dledger.core.hard_state import HardState
from dledger.core.messages import Message, VoteRequest
from dledger.entry import Magic, decode_entries
from dledger.errors import ConfigInvalid, DiskFailed
from dledger.node.driver import Driver
from dledger.node.sync_schedule import FlushDelay, SyncSchedule
from dledger.store.open_store import open_store
from dledger.waits.pending_appends import Outcome
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk
from tests.dledger.node.stored_member import CONFIG, StoredMember
from tests.dledger.node.test_node import Group, Register, running
from tests.dledger.node.test_traps_durability import DeafLink, DeafLinks, driver_of

INTERVAL_S, PATIENCE_S = 10.0, 0.5


@pytest.fixture
def delay() -> FlushDelay:
    return FlushDelay(INTERVAL_S, PATIENCE_S, (3, 0))


def test_what_is_written_counts_once_and_is_due_an_interval_later(delay: FlushDelay) -> None:
    assert not delay.counts((3, 0), 1.0)
    assert delay.counts((4, 0), 1.0)
    assert not delay.counts((4, 0), 1.5)
    assert delay.counts((9, 0), 2.0)
    assert delay.due_at == 1.0 + INTERVAL_S


def test_a_log_that_was_cut_and_is_as_long_again_counts_anew(delay: FlushDelay) -> None:
    assert delay.counts((4, 0), 1.0)
    assert delay.counts((4, 1), 2.0)


def test_what_is_written_during_a_sync_waits_for_the_next_one(delay: FlushDelay) -> None:
    assert delay.counts((4, 0), 1.0)
    delay.began(11.0, promises=False)
    assert delay.due_at == float("inf")
    assert delay.counts((5, 0), 11.25)
    assert delay.due_at == 11.25 + INTERVAL_S


def test_no_entry_overtakes_a_term_on_its_way_to_the_disk(delay: FlushDelay) -> None:
    delay.began(1.0, promises=True)
    assert not delay.counts((4, 0), 1.1)
    delay.ended()
    assert delay.counts((4, 0), 1.2)


def test_nothing_counts_while_the_disk_is_stuck(delay: FlushDelay) -> None:
    delay.began(1.0, promises=False)
    assert delay.counts((4, 0), 1.0 + PATIENCE_S)
    assert not delay.counts((5, 0), 1.1 + PATIENCE_S)
    delay.ended()
    assert delay.counts((5, 0), 9.0)


def test_no_turn_is_asked_for_while_the_sync_runs_that_would_have_to_end_first() -> None:
    member = StoredMember("n0", ["n0", "n1"])
    syncs = SyncSchedule(member.store, member.syncs, 0.01, PATIENCE_S)
    member.store.append(1, Magic.NORMAL, [b"one"])
    assert syncs.written_that_counts(1.0) == (0, 0)
    assert syncs.next_deadline == 1.01
    syncs.start(1.01)
    member.store.append(1, Magic.NORMAL, [b"two"])
    assert syncs.written_that_counts(1.02) == (1, 0)
    assert syncs.next_deadline == float("inf")
    member.syncs.work = None
    assert syncs.next_deadline == 1.03


def test_no_turn_is_asked_for_when_what_counts_is_synced_already() -> None:
    member = StoredMember("n0", ["n0", "n1"])
    syncs = SyncSchedule(member.store, member.syncs, 0.01, PATIENCE_S)
    syncs.hard_state_due = HardState(1, "n1")
    member.store.append(1, Magic.NORMAL, [b"one"])
    syncs.start(1.0)
    work = member.syncs.work
    assert work is not None
    work.run()
    assert syncs.written_that_counts(1.1) is None, "an entry must not overtake its term"
    member.syncs.work = None
    syncs.ended(work)
    assert syncs.written_that_counts(1.2) == (0, 0)
    assert not syncs.is_due(1.3)
    assert syncs.next_deadline == float("inf")


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_interval_of_no_time_is_refused(tmp_path: Path, interval_ms: int) -> None:
    config = Group(tmp_path, 1).config("n0")
    with pytest.raises(ConfigInvalid, match="leave it out to sync before an entry counts"):
        replace(config, flush_interval_ms=interval_ms)


def later(links: DeafLinks, flush_interval_s: float) -> tuple[StoredMember, Driver]:
    """A member that syncs later, and what drives it. Without links it is alone, and leads."""
    member = StoredMember("n0", ["n0", *links])
    return member, driver_of(member, links, flush_interval_s=flush_interval_s)


async def settled() -> None:
    """Let threads that sync report."""
    for _ in range(20):
        await trio.testing.wait_all_tasks_blocked(0.005)


async def test_an_entry_is_committed_without_a_sync_and_a_vote_is_not_given_without() -> None:
    member, driver = later(DeafLinks(), 3600.0)
    outcomes: list[Outcome] = []
    try:
        driver.turn()
        await settled()
        driver.turn()
        member.disk.sync_fails = True
        driver.submit([b"an entry"], 8, outcomes.append)
        driver.turn()
        assert member.replica.state.committed == member.store.last_index > 0
        assert member.store.synced_index < member.store.last_index
        links = DeafLinks({peer: DeafLink() for peer in ("n1", "n2")})
        voter, votes = later(links, 3600.0)
        voter.replica.elector.postpone(trio.current_time())
        voter.disk.sync_fails = True
        question: Message = VoteRequest(1, -1, -1, pre=False)
        votes.received("n1", [question])
        with pytest.raises(DiskFailed), trio.fail_after(5):
            await votes.run()
        votes.close()
        assert links["n1"].messages == []
    finally:
        driver.close()


async def test_a_sync_that_is_due_and_fails_ends_the_node() -> None:
    member, driver = later(DeafLinks(), 0.001)
    try:
        driver.turn()
        await settled()
        driver.turn()
        member.disk.sync_fails = True
        driver.submit([b"an entry"], 8, lambda outcome: None)
        driver.turn()
        await trio.sleep(0.002)
        driver.turn()
        with pytest.raises(DiskFailed), trio.fail_after(5):
            await driver.run()
    finally:
        driver.close()


@pytest.mark.parametrize("seed", range(40))
def test_after_a_power_cut_the_log_opens_and_holds_at_least_what_was_synced(seed: int) -> None:
    chance = Chance(seed, "cut")
    disk = VirtualDisk(Chance(seed, "disk"))
    store = open_store(disk, "/base", CONFIG, "g", "n0")
    store.begin_sync(HardState(1, "n0")).run()
    written: list[bytes] = []
    for _ in range(chance.randint(1, 60)):
        bodies = [b"%d " % (len(written) + n) * chance.randint(1, 40) for n in range(3)]
        store.append(1, Magic.NORMAL, bodies)
        written += bodies
        store.note_committed(store.last_index)
        store.save_committed()
        if chance.happens(0.1):
            store.begin_sync(None).run()
    synced = store.synced_index
    disk.cut_power(CrashStyle(keep=chance.randint(0, 2) / 2, torn=0.5, names_in_order=True))
    store = open_store(disk, "/base", CONFIG, "g", "n0")
    assert synced <= store.last_index < len(written)
    found = 0
    while found <= store.last_index:
        entries = decode_entries(store.read(found, store.last_index, 1 << 16))
        assert [e.body for e in entries] == written[found : found + len(entries)]
        found += len(entries)


def flush_every(monkeypatch: pytest.MonkeyPatch, interval_ms: int) -> None:
    """Have the members of groups flush so often, and keep their leader on a busy machine.

    They share one loop here: a disk that stops it for a moment stops all of them, and the first
    to go on must not be one who misses its leader.
    """
    usual = Group.config

    def config(group: Group, node_id: str) -> dledger.NodeConfig:
        return replace(
            usual(group, node_id), flush_interval_ms=interval_ms, election_timeout_ms=1_000
        )

    monkeypatch.setattr(Group, "config", config)


async def test_a_group_that_flushes_later_says_how_much_a_power_cut_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush_every(monkeypatch, 60_000)
    async with running(tmp_path, 3) as group:
        leader = await group.leader()
        appended = await leader.append(b"one")
        last = (await leader.append_many([b"two", b"three"]))[-1].index
        status = leader.status()
        assert status.durable == status.committed == last
        assert status.synced < appended.index
        peers = group.peers
    # Who closes in peace syncs.
    again = Group(tmp_path, 3)
    again.peers = peers
    machine = Register()
    async with dledger.open_node(again.config("n1"), machine) as node:
        assert node.status().synced == node.status().last_index >= last


async def test_what_is_written_is_synced_an_interval_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush_every(monkeypatch, 20)
    async with running(tmp_path, 1) as group:
        leader = await group.leader()
        appended = await leader.append(b"one")
        with trio.fail_after(10):
            while leader.status().synced < appended.index:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.005)
