"""Known traps of durability, on the real store; docs/traps.md says which test is for which."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import trio

from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    PushRequest,
    PushResponse,
    VoteRequest,
    VoteResponse,
)
from dledger.core.replica import Outcomes
from dledger.entry import Magic, decode_entries
from dledger.errors import DiskFailed, LeadershipLost, MessageMalformed, PeerFault
from dledger.node.driver import Driver
from dledger.serving.host_timer import HostTimer
from dledger.serving.sync_threads import DiskThreads
from dledger.store.log_durability import SegmentSyncWork
from dledger.store.log_store import SyncWork
from dledger.store.push_check import PushCheck
from dledger.waits.pending_appends import Outcome
from jepsen_like.simulation.virtual_disk import PowerCut
from tests.dledger.core.core_group import TIMEOUT_S
from tests.dledger.node.stored_member import StoredMember

THREE = ["n0", "n1", "n2"]
LATER = 2 * TIMEOUT_S


def granted_to(member: StoredMember, now: float) -> set[str]:
    return {
        peer
        for peer, message in member.leaving(now)
        if isinstance(message, VoteResponse) and message.granted
    }


@pytest.mark.parametrize("steps", range(6))
def test_a_vote_that_a_power_cut_took_back_was_told_to_nobody(steps: int) -> None:
    member = StoredMember("n0", THREE)
    member.receive("n1", VoteRequest(1, -1, -1, pre=False), LATER)
    told = granted_to(member, LATER)
    member.disk.steps_left = steps
    try:
        member.sync(LATER)
        told |= granted_to(member, LATER)
    except PowerCut:
        assert steps < 2  # the write of the record, and its sync
    member.cut_power(LATER)
    member.receive("n2", VoteRequest(1, -1, -1, pre=False), 2 * LATER)
    told |= granted_to(member, 2 * LATER)
    member.sync(2 * LATER)
    told |= granted_to(member, 2 * LATER)
    assert len(told) == 1


def test_a_candidate_whose_record_cannot_be_written_asks_for_no_votes() -> None:
    member = StoredMember("n0", THREE)
    member.replica.tick(LATER)
    member.leaving(LATER)
    member.receive("n1", VoteResponse(1, granted=True, pre=True), LATER)
    member.disk.sync_fails = True
    with pytest.raises(DiskFailed):
        member.sync(LATER)
    assert member.leaving(LATER) == []
    with pytest.raises(DiskFailed):
        member.sync(LATER)


def exchanges(steps: int) -> Iterator[tuple[StoredMember, int]]:
    """A leader and a follower in turns, until the follower loses its power after so many calls.

    A sync is told of one turn after it ran, when more has been written: only what was there when
    it began may be acknowledged then.
    """
    leader, follower = StoredMember("n0", ["n0", "n1"]), StoredMember("n1", ["n0", "n1"])
    acknowledged = -1
    now = LATER
    leader.replica.tick(now)
    follower.disk.steps_left = steps
    ran: dict[str, SyncWork] = {}
    for turn in range(40):
        now += 0.01
        if leader.replica.acks is not None:
            leader.propose([b"turn %d " % turn * 10] * 3)
        for member, other in ((leader, follower), (follower, leader)):
            if turn % 2 and (work := ran.pop(member.name, None)) is not None:
                member.carry_out_writes()  # what arrived since is written, and not synced
                member.synced(work, now)
            for _, message in member.leaving(now):
                if isinstance(message, PushResponse):
                    acknowledged = max(acknowledged, message.match)
                other.receive(member.name, message, now)
            yield follower, acknowledged
            if turn % 2 == 0:
                ran[member.name] = member.run_sync()


@pytest.mark.parametrize("steps", range(20, 140, 6))
def test_what_was_acknowledged_is_there_after_a_power_cut(steps: int) -> None:
    acknowledged = -1
    cut = False
    try:
        for reached in exchanges(steps):
            follower, acknowledged = reached
    except PowerCut:
        cut = True
    assert cut, "the power never went"
    follower.cut_power(0.0)
    store = follower.store
    assert store.last_index >= acknowledged
    found = 0
    while found <= store.last_index:
        found += len(decode_entries(store.read(found, store.last_index, 1000)))
    if steps > 60:
        assert acknowledged > 0


def test_a_restarted_member_is_in_no_older_term_than_its_log() -> None:
    # The entries of a term reach the disk before the record of the term does.
    member = StoredMember("n0", THREE)
    member.store.append(7, Magic.NORMAL, [b"an entry of term 7"])
    member.store.begin_sync(None).run()
    member.cut_power(0.0)
    assert member.store.last_term == 7
    assert member.store.hard_state == HardState(7, None, -1)
    assert member.replica.state.term == 7


class DeafLink:
    """A connection to a peer, which notes that something was sent."""

    connected = True

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.used = trio.Event()

    def send(self, message: Message, payload: bytes = b"") -> None:
        self.messages.append(message)
        self.used.set()


class NothingShared:
    """There are no other groups whose heartbeats could leave together with ours."""

    collecting = False

    def flush(self) -> None:
        self.collecting = False


def no_host() -> tuple[HostTimer, DiskThreads]:
    """A timer that does not run, and threads for the disk."""
    return HostTimer(NothingShared()), DiskThreads()


class DeafLinks(dict[str, DeafLink]):
    """A deaf link to each peer."""

    def link_to(self, peer: str) -> DeafLink:
        return self[peer]


class Watcher:
    """Has a function told of changes."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    def told(self, outcomes: Outcomes) -> None:
        self._told()

    def applied(self) -> None:
        """Not of interest here."""

    def refused(self, fault: PeerFault) -> None:
        raise fault


def driver_of(
    member: StoredMember,
    links: DeafLinks,
    turned: Callable[[], None] = lambda: None,
    flush_interval_s: float | None = None,
) -> Driver:
    """What drives this member, with nothing around it but its disk."""
    return Driver(
        lambda around: member.made(around, flush_interval_s), links, *no_host(), Watcher(turned)
    )


async def test_a_failed_sync_ends_the_driver_and_lets_no_promise_out() -> None:
    member = StoredMember("n0", THREE)
    member.replica.elector.postpone(trio.current_time())
    links = DeafLinks({peer: DeafLink() for peer in ("n1", "n2")})
    driver = driver_of(member, links)
    member.disk.sync_fails = True
    question: Message = VoteRequest(1, -1, -1, pre=False)
    driver.received("n1", [question])
    try:
        with pytest.raises(DiskFailed), trio.fail_after(1):
            await driver.run()
    finally:
        driver.close()
    assert [link.messages for link in links.values()] == [[], []]


async def test_a_record_that_is_durable_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = StoredMember("n0", THREE)
    member.replica.elector.postpone(trio.current_time())
    links = DeafLinks({peer: DeafLink() for peer in ("n1", "n2")})
    driver = driver_of(member, links)
    begin_sync, records = member.store.begin_sync, []

    def once(record: HardState | None) -> SegmentSyncWork:
        assert record not in records, "the same record is to be synced again"
        records.append(record)
        return begin_sync(record)

    monkeypatch.setattr(member.store, "begin_sync", once)
    try:
        driver.received("n1", [Heartbeat(7, -1, 1)])
        with trio.fail_after(5):
            await links["n1"].used.wait()
        assert member.store.hard_state.term == 7
        assert driver._failure is None
        assert driver.member.turn.syncs.hard_state_due is None
        assert not driver.member.turn.syncs.is_due(trio.current_time())
    finally:
        driver.close()


async def test_a_follower_tells_its_leader_of_its_sync_before_it_applies_anything() -> None:
    leader, follower = StoredMember("n0", ["n0", "n1"]), StoredMember("n1", ["n0", "n1"])
    leader.replica.tick(LATER)
    now = LATER
    for _ in range(20):
        now += 0.01
        for member, other in ((leader, follower), (follower, leader)):
            for _, message in member.leaving(now):
                other.receive(member.name, message, now)
            member.sync(now)
    assert follower.replica.state.committed == follower.store.last_index
    state = follower.replica.state
    before = state.applied
    applied: list[int] = []  # when each message left

    class Noting(DeafLink):
        def send(self, message: Message, payload: bytes = b"") -> None:
            applied.append(state.applied)

    driver = driver_of(follower, DeafLinks({"n0": Noting()}))
    driver._syncer._average_s = -1e9  # the disk is quick, on a busy machine, too
    leader.propose([b"a body"])
    try:
        ((_, push),) = leader.leaving(now)
        assert isinstance(push, PushRequest)
        driver.received("n0", [PushCheck(follower.store).check(push)])
    finally:
        driver.close()
    assert applied == [before]
    assert state.applied > before


async def test_a_heartbeat_is_answered_only_when_its_term_is_durable() -> None:
    member = StoredMember("n0", THREE)
    links = DeafLinks({peer: DeafLink() for peer in ("n1", "n2")})
    driver = driver_of(member, links)
    try:
        member.replica.elector.postpone(trio.current_time())
        driver.received("n1", [Heartbeat(7, -1, 1)])  # its sync ends when this test waits
        driver.received("n1", [Heartbeat(7, -1, 2)])
        assert links["n1"].messages == []
        with trio.fail_after(5):
            await links["n1"].used.wait()
        assert links["n1"].messages == [HeartbeatResponse(7, 2)]  # the newest says it all
        assert member.store.hard_state.term == 7
        driver.received("n1", [Heartbeat(7, -1, 3)])
        assert links["n1"].messages[1:] == [HeartbeatResponse(7, 3)]
    finally:
        driver.close()


def test_bytes_that_rot_on_the_leaders_disk_are_not_taken_by_a_follower() -> None:
    leader, follower = StoredMember("n0", ["n0", "n1"]), StoredMember("n1", ["n0", "n1"])
    now = LATER
    leader.replica.tick(now)
    refused = 0
    for _ in range(20):
        now += 0.01
        for member, other in ((leader, follower), (follower, leader)):
            for _, message in member.leaving(now):
                payload = getattr(message, "payload", b"")
                if payload:
                    rotten = payload[:-1] + bytes((payload[-1] ^ 1,))
                    with pytest.raises(MessageMalformed):
                        other.receive(member.name, message._replace(payload=rotten), now)  # type: ignore[call-arg]
                    refused += 1
                other.receive(member.name, message, now)
            member.sync(now)
        if leader.replica.acks is not None and refused < 3:
            leader.propose([b"a body"])
    assert refused >= 3
    assert follower.store.last_index == leader.store.last_index
    assert follower.store.chain_at(2) == leader.store.chain_at(2)


async def test_a_leader_that_steps_down_tells_those_who_wait_that_it_does_not_know() -> None:
    member = StoredMember("n0", THREE)
    state = member.replica.state
    leads = trio.Event()
    links = DeafLinks({peer: DeafLink() for peer in ("n1", "n2")})
    driver = driver_of(member, links, lambda: leads.set() if state.role is Role.LEADER else None)
    try:
        member.replica.elector.deadline = 0.0  # its election timeout ran out
        driver.received("n1", [])
        granted = [VoteResponse(1, granted=True, pre=pre) for pre in (True, False)]
        driver.received("n1", granted)
        with trio.fail_after(5):
            await leads.wait()
        outcomes: list[Outcome] = []
        driver.submit([b"open"], 4, outcomes.append)
        driver.received("n1", [])
        assert outcomes == []
        driver.received("n1", [Heartbeat(9, -1, 1)])
        assert len(outcomes) == 1
        lost = outcomes[0]
        assert isinstance(lost, LeadershipLost)
        assert (lost.index, lost.term, lost.leader) == (1, 1, "n1")
        assert not lost.retry_safe
    finally:
        driver.close()
