"""The first election of a new group: as soon as all voters are proven, and by the timers else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dledger.core.admission.standing import Standing, Told
from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.membership import Membership
from dledger.core.messages import Inquiry, InquiryAnswer, VoteRequest
from dledger.core.replica import Replica, ReplicaConfig
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import TIMEOUT_S, EntriesAtOnce, Member, take_messages, view_of
from tests.dledger.core.timed_group import TimedGroup

THREE = ["n0", "n1", "n2"]


def new_group(
    size: int, seed: int, told: Told = Told.NOTHING, max_clock_drift: float | None = None
) -> TimedGroup:
    """Members with empty folders, a millisecond apart from each other."""
    names = [f"n{at}" for at in range(size)]
    return TimedGroup(
        names,
        lambda _a, _b: 0.001,
        lambda _name: 0.004,
        seed=seed,
        standing=Standing.FRESH,
        told=told,
        max_clock_drift=max_clock_drift,
    )


def await_leader(group: TimedGroup, limit_s: float) -> None:
    group.run(lambda: group.leader is not None, limit_s)


def asked(member: Member, now: float) -> tuple[list[str], list[str]]:
    """Whom a member asks at that moment: about themselves, and for pre-votes."""
    member.replica.tick(now)
    left = member.leaving(now)
    member.sync(now)
    inquired = [peer for peer, m in left if isinstance(m, Inquiry)]
    return inquired, [peer for peer, m in left if isinstance(m, VoteRequest) and m.pre]


def told(member: Member, peers: Sequence[str], now: float, *, proven: bool, new: bool) -> None:
    """Others answer a member's question."""
    term, last_index = (0, -1) if new else (1, 0)
    number = member.replica.admission._number
    answer = InquiryAnswer(term, number, last_index, new, proven, leads=False, voters=3)
    for peer in peers:
        member.replica.receive(peer, answer, now)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_members_that_are_started_together_have_a_leader_in_a_fraction_of_a_timeout(
    size: int,
) -> None:
    for seed in range(20):
        group = new_group(size, seed)
        await_leader(group, 0.2 * TIMEOUT_S)
        assert group.leader is not None
        assert group.leader.term == 1


def test_no_member_stands_before_all_are_proven() -> None:
    for seed in range(20):
        group = new_group(3, seed)
        group.one_way_s = lambda a, b: 0.030 if "n2" in (a, b) else 0.001
        members = group.members.values()
        group.run(lambda members=members: any(m.term for m in members), TIMEOUT_S)  # type: ignore[misc]
        assert all(m.replica.state.proven for m in members)


def test_a_member_that_starts_last_finds_the_others_ready_and_is_followed_soon() -> None:
    for seed in range(20):
        group = new_group(3, seed)
        group.separate(["n2"])
        group.run_for(0.8 * TIMEOUT_S)
        assert group.leader is None
        group.cut.clear()
        group.members["n2"].replica.reachable("n0", group.now)
        group.turn("n2")
        await_leader(group, 0.2 * TIMEOUT_S)


def test_without_one_member_the_timers_decide() -> None:
    group = new_group(3, 1, Told.NEW)
    group.separate(["n2"])
    group.run_for(0.99 * TIMEOUT_S)
    assert group.leader is None
    await_leader(group, 1.5 * TIMEOUT_S)


def test_a_proven_member_asks_until_the_others_are_proven_and_then_takes_its_turn() -> None:
    member = Member("n0", THREE, standing=Standing.FRESH)
    assert asked(member, 0.0) == (["n1", "n2"], [])
    told(member, ["n1", "n2"], 0.001, proven=False, new=True)
    assert asked(member, 0.001) == (["n1", "n2"], [])
    assert member.replica.state.proven
    assert asked(member, 0.002) == ([], [])
    told(member, ["n1"], 0.003, proven=True, new=True)
    again = member.replica.next_deadline()
    assert again == pytest.approx(0.001 + 0.02 * TIMEOUT_S)
    assert asked(member, again) == (["n1", "n2"], [])
    told(member, ["n2"], 0.012, proven=True, new=True)
    assert asked(member, 0.012) == ([], [])
    turn = member.replica.next_deadline()
    assert turn == pytest.approx(0.012 + 0.02 * TIMEOUT_S)
    assert asked(member, turn) == ([], ["n1", "n2"])


def test_a_member_that_hears_of_an_election_meanwhile_waits_for_its_timer() -> None:
    member = Member("n0", THREE, standing=Standing.FRESH)
    asked(member, 0.0)
    told(member, ["n1", "n2"], 0.001, proven=False, new=True)
    asked(member, 0.001)
    told(member, ["n1", "n2"], 0.002, proven=True, new=False)
    assert asked(member, 0.003) == ([], [])
    assert member.replica.next_deadline() == member.replica.elector.deadline
    assert member.replica.next_deadline() >= TIMEOUT_S


def test_a_member_asks_no_longer_than_an_election_timeout_whether_others_are_proven() -> None:
    member = Member("n0", THREE, standing=Standing.FRESH)
    asked(member, 0.0)
    told(member, ["n1", "n2"], 0.001, proven=False, new=True)
    questions = 0
    now = 0.001
    while now < 3 * TIMEOUT_S:
        inquired, _ = asked(member, now)
        assert not (inquired and now > 1.001 * TIMEOUT_S + 0.001)
        questions += len(inquired)
        now = max(member.replica.next_deadline(), now + 1e-6)
    assert 20 < questions <= 2 * 51


def test_with_lease_reads_the_timers_decide() -> None:
    # The others count a promise from before their start, and would refuse.
    for seed in range(5):
        group = new_group(3, seed, max_clock_drift=0.01)
        group.run_for(0.99 * TIMEOUT_S)
        assert all(m.role is Role.FOLLOWER for m in group.members.values())
        assert all(m.replica.state.proven for m in group.members.values())


def test_members_that_come_back_to_their_folders_wait_for_their_timers() -> None:
    for seed in range(5):
        names = THREE
        group = TimedGroup(names, lambda _a, _b: 0.001, lambda _name: 0.004, seed=seed)
        group.run_for(0.99 * TIMEOUT_S)
        assert group.leader is None


@pytest.mark.parametrize("told", [Told.NOTHING, Told.NEW])
@pytest.mark.parametrize("calls_wait_s", [0.4, 3.0])
def test_a_read_of_a_member_that_is_about_to_begin_its_group_waits_for_that(
    calls_wait_s: float, told: Told
) -> None:
    timeout_s = 0.1  # four of them are no longer than it waits for calls
    member = Member("n0", ["n0"], standing=Standing.FRESH)
    config = ReplicaConfig(
        "n0", configuration(["n0"]), timeout_s, told=told, calls_wait_s=calls_wait_s
    )
    replica = Replica(
        config,
        view_of([]),
        HardState(0),
        EntriesAtOnce(100),
        lambda: 0.5,
        0.0,
        Membership(configuration(["n0"])),
        standing=Standing.FRESH,
    )
    member.begin(replica, {}, Standing.FRESH)
    now, limit = 0.0, calls_wait_s + 6 * timeout_s
    replica.request_read(7)
    while now < limit:
        replica.tick(now)
        member.take_writes()
        outcome = take_messages(replica, now)
        assert not outcome.reads_lost, now
        if outcome.reads_ready:
            break
        member.sync(now)
        now = max(now + 0.001, min(replica.next_deadline(), now + 0.01))
    assert now < limit


def test_a_read_waits_no_longer_once_the_member_may_begin() -> None:
    alone = Member("n0", ["n0"], standing=Standing.FRESH)
    assert alone.replica.admission.begins_at(0.0) > 0.0
    for now in (100.0, 200.0):
        assert alone.replica.admission.begins_at(now) == now
    others = Member("n0", THREE, standing=Standing.FRESH)
    joins = Member("n3", [], began_with=Configuration(), standing=Standing.FRESH)
    for member in (Member("n0", ["n0"]), others, joins):
        assert member.replica.admission.begins_at(0.0) == 0.0
