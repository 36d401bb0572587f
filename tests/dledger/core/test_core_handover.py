"""Preferred leaders, leaders with bad disks, and members that forget their leader."""

from itertools import pairwise

from dledger.core.handover import (
    FIRST_WAIT_TIMEOUTS,
    LAST_WAIT_TIMEOUTS,
    NEARLY_CAUGHT_UP_ENTRIES,
    STABLE_TIMEOUTS,
    DiskWatch,
    PreferredLeader,
)
from dledger.core.member_state import Role
from dledger.core.messages import Heartbeat, TimeoutNow, VoteRequest, VoteResponse
from dledger.core.patience import Patience
from dledger.core.reads.freshness import Freshness
from dledger.core.replica import Replica, ReplicaConfig
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import (
    HEARTBEAT_S,
    TIMEOUT_S,
    EntriesAtOnce,
    Group,
    Member,
    view_of,
)

THREE = ["n0", "n1", "n2"]
FIRST_WAIT_S = FIRST_WAIT_TIMEOUTS * TIMEOUT_S


def leaders(group: Group) -> list[str]:
    return [name for name in group.names if group[name].role is Role.LEADER]


def preferring_n0(size: int = 3) -> Group:
    """A group whose members prefer n0; n1 leads it."""
    group = Group([[] for _ in range(size)])
    for name, member in group.members.items():
        old = member.replica
        config = ReplicaConfig(name, configuration(group.names), TIMEOUT_S, HEARTBEAT_S, None, "n0")
        view, record = old.view, old.state.hard_state
        replica = Replica(config, view, record, EntriesAtOnce(100), lambda: 0.5, 0.0)
        member.begin(replica, {})
    group.elect("n1")
    return group


# --- the preferred leader -------------------------------------------------------------------------


def test_the_preferred_member_leads_after_it_was_healthy_for_a_while() -> None:
    group = preferring_n0()
    group.pass_time(0.8 * FIRST_WAIT_S)
    assert leaders(group) == ["n1"]
    group.pass_time(0.4 * FIRST_WAIT_S)
    assert leaders(group) == ["n0"]
    group.pass_time(4 * FIRST_WAIT_S)
    assert leaders(group) == ["n0"]
    assert group["n0"].term == 2


def test_nothing_is_tried_while_the_preferred_member_is_away() -> None:
    group = preferring_n0()
    group.silent = {"n0"}
    for _ in range(8):
        group.pass_time(FIRST_WAIT_S)
        group["n1"].replica.check_proposable()
    assert leaders(group) == ["n1"]


def test_a_preferred_member_that_is_far_behind_does_not_lead_yet() -> None:
    group = preferring_n0()
    leader = group["n1"].replica
    for behind, wanted in ((NEARLY_CAUGHT_UP_ENTRIES + 1, False), (NEARLY_CAUGHT_UP_ENTRIES, True)):
        leader.dispatchers["n0"].match_index = leader.view.last_index - behind
        for step in range(40):
            now = group.now + step * TIMEOUT_S
            leader.dispatchers["n0"].last_answer_at = now
            leader.handover.tick(leader.dispatchers, serves=True, now=now)
            if leader.handover.transfer is not None:
                break
        assert (leader.handover.transfer is not None) is wanted


def test_each_attempt_waits_twice_as_long_as_the_last_up_to_a_bound() -> None:
    preferred = PreferredLeader("n0", 1.0)
    attempts: list[float] = []
    now = 0.0
    while len(attempts) < 12:
        preferred.observe("n1", now)
        if preferred.due(healthy=True, now=now):
            attempts.append(now)
        now += 0.5
    waits = [later - earlier for earlier, later in pairwise(attempts)]
    assert attempts[0] == FIRST_WAIT_TIMEOUTS
    assert all(later >= 1.9 * earlier for earlier, later in pairwise(waits[:5]))
    assert max(waits) <= LAST_WAIT_TIMEOUTS + 1.0
    assert waits[-1] >= LAST_WAIT_TIMEOUTS


def test_a_preferred_leader_that_keeps_failing_is_put_back_ever_more_seldom() -> None:
    preferred = PreferredLeader("n0", 1.0)
    now, hand_overs = 0.0, 0
    while now < 3_600.0:
        preferred.observe("n1", now)
        if preferred.due(healthy=True, now=now):
            hand_overs += 1
            preferred.observe("n0", now)
            now += 2.0  # it leads for two election timeouts, and fails again
        now += 1.0
    assert hand_overs <= 12


def test_a_preferred_leader_that_led_for_long_is_trusted_again() -> None:
    preferred = PreferredLeader("n0", 1.0)
    for now in range(40):
        preferred.observe("n1", float(now))
        preferred.due(healthy=True, now=float(now))
    preferred.observe("n0", 50.0)
    preferred.observe("n1", 51.0 + STABLE_TIMEOUTS)
    begin = 52.0 + STABLE_TIMEOUTS
    assert not preferred.due(healthy=True, now=begin)
    assert preferred.due(healthy=True, now=begin + FIRST_WAIT_TIMEOUTS)


def test_a_member_that_is_not_healthy_all_the_time_waits_anew() -> None:
    preferred = PreferredLeader("n0", 1.0)
    assert not preferred.due(healthy=True, now=0.0)
    assert not preferred.due(healthy=False, now=3.0)
    assert not preferred.due(healthy=True, now=3.5)
    assert not preferred.due(healthy=True, now=3.5 + 0.9 * FIRST_WAIT_TIMEOUTS)
    assert preferred.due(healthy=True, now=3.5 + FIRST_WAIT_TIMEOUTS)


# --- a disk that stalls ---------------------------------------------------------------------------


def stalled_leader() -> tuple[Group, Member]:
    """n0 leads, and its disk has just stopped to finish syncs; an entry waits for it."""
    group = Group([[], [], []])
    leader = group.elect("n0")
    group.pass_time(HEARTBEAT_S)
    leader.sync = lambda now: leader.take_writes()  # type: ignore[method-assign]
    group.propose("n0", 1)
    return group, leader


def test_a_leader_whose_disk_finishes_no_sync_makes_room_for_another_at_once() -> None:
    group, _ = stalled_leader()
    begin = group.now
    while leaders(group) == ["n0"] and group.now < begin + 10:
        group.pass_time(HEARTBEAT_S / 4)
    assert group.now - begin <= TIMEOUT_S + 2 * HEARTBEAT_S
    assert any(isinstance(message, TimeoutNow) for _, _, message in group.sent)
    group.pass_time(HEARTBEAT_S)
    assert len(leaders(group)) == 1
    assert leaders(group) != ["n0"]


def test_a_member_whose_disk_is_stalled_neither_stands_nor_disturbs_the_new_leader() -> None:
    group, member = stalled_leader()
    group.pass_time(2 * TIMEOUT_S)
    (leader,) = leaders(group)
    term = group[leader].term
    for _ in range(20):
        group.now += TIMEOUT_S
        member.replica.tick(group.now)
        assert member.role is Role.FOLLOWER
        assert member.leaving(group.now) == []
    assert group[leader].term == term


def test_a_stalled_disk_is_no_reason_while_nothing_waits_for_it() -> None:
    group = Group([[], [], []])
    leader = group.elect("n0")
    group.pass_time(HEARTBEAT_S)
    leader.sync = lambda now: None  # type: ignore[method-assign]
    group.pass_time(4 * TIMEOUT_S)
    assert leaders(group) == ["n0"]


def test_a_slow_disk_that_makes_progress_is_not_stalled() -> None:
    watch = DiskWatch(limit_s=1.0)
    for step in range(100):
        watch.observe(last_index=step + 5, durable=step // 2, now=step * 0.4)
        assert not watch.stalled(step * 0.4)
    watch.observe(200, 49, 40.0)  # the last progress was at 39.2
    assert not watch.stalled(40.1)
    assert watch.stalled(40.21)
    watch.observe(200, 200, 41.0)
    assert not watch.stalled(99.0)


def test_a_group_of_one_waits_for_its_disk_as_leader() -> None:
    group = Group([[]])
    member = group["n0"]
    member.replica.tick(0.0)
    group.run()
    member.sync = lambda now: member.take_writes()  # type: ignore[method-assign]
    group.propose("n0", 1)
    group.pass_time(4 * TIMEOUT_S)
    assert member.role is Role.LEADER


# --- forgetting -----------------------------------------------------------------------------------


def follower() -> Member:
    member = Member("n0", THREE)
    member.replica.receive("n1", Heartbeat(1, -1, 1), 0.0)
    member.sync(0.0)
    member.leaving(0.0)
    return member


def grants(member: Member, last_index: int = 5, *, pre: bool = True) -> bool:
    member.replica.receive("n2", VoteRequest(2, last_index, last_index, pre=pre), 0.1)
    member.sync(0.1)
    (vote,) = [m for _, m in member.leaving(0.1) if isinstance(m, VoteResponse)]
    return vote.granted


def test_a_member_that_forgot_its_leader_votes_for_another_at_once() -> None:
    for pre in (True, False):
        member = follower()
        assert not grants(member, pre=pre)
        member.replica.forget_leader()
        assert grants(member, pre=pre)


def test_forgetting_opens_no_way_for_a_shorter_log() -> None:
    member = follower()
    member.replica.view.extend(1, 3)
    member.replica.forget_leader()
    assert not grants(member, last_index=0)


def test_forgetting_does_not_touch_the_election_timer() -> None:
    member = follower()
    deadline = member.replica.elector.deadline
    member.replica.forget_leader()
    assert member.replica.elector.deadline == deadline
    assert member.role is Role.FOLLOWER


def test_a_heartbeat_undoes_forgetting() -> None:
    member = follower()
    member.replica.forget_leader()
    member.replica.receive("n1", Heartbeat(1, -1, 2), 0.05)
    assert member.replica.state.leader == "n1"
    member.leaving(0.05)
    assert not grants(member)


def test_a_leader_and_a_candidate_forget_nothing() -> None:
    group = Group([[], [], []])
    group.elect("n0")
    group["n0"].replica.forget_leader()
    assert group["n0"].replica.state.leader == "n0"
    candidate = Member("n1", THREE)
    candidate.replica.tick(5.0)
    candidate.replica.forget_leader()
    assert candidate.role is Role.PRE_CANDIDATE


# --- how old a state is ---------------------------------------------------------------------------


def test_a_state_is_as_old_as_the_last_heartbeat_it_has_worked_off() -> None:
    freshness = Freshness(view_of([1, 1, 1]), Patience(0.1, 0.0))
    freshness.heard(committed=1, term=1, applied=0, at=5.0)
    assert freshness.as_of(0) == float("-inf")
    assert freshness.as_of(1) == 5.0
    freshness.heard(committed=2, term=1, applied=1, at=6.0)
    freshness.heard(committed=2, term=1, applied=1, at=7.0)
    assert freshness.as_of(1) == 5.0
    assert freshness.as_of(2) == 6.0
    freshness.heard(committed=2, term=1, applied=2, at=8.0)
    assert freshness.as_of(2) == 8.0


def test_a_leader_that_has_not_committed_in_its_term_says_nothing_about_age() -> None:
    # Its predecessor may have committed more than it knows.
    freshness = Freshness(view_of([1, 1, 1, 2]), Patience(0.1, 0.0))
    freshness.heard(committed=1, term=2, applied=1, at=5.0)
    assert freshness.as_of(1) == float("-inf")
    freshness.heard(committed=3, term=2, applied=1, at=6.0)
    assert freshness.as_of(3) == 6.0


def test_a_state_grows_old_while_its_member_is_paused() -> None:
    group = Group([[], [], []])
    group.elect("n0")
    members = [group[name].replica for name in ("n0", "n1")]
    group.pass_time(3 * HEARTBEAT_S)
    for replica in members:
        replica.applied_to(replica.appliable)
    group.pass_time(3 * HEARTBEAT_S)
    assert all(replica.fresh_as_of > group.now - 3 * HEARTBEAT_S for replica in members)
    paused_at = group.now
    group.pause("n0", "n1", for_s=30.0)
    for replica in members:
        replica.tick(group.now)
    assert all(replica.fresh_as_of <= paused_at for replica in members)
    group.pass_time(3 * HEARTBEAT_S)
    assert all(
        group.now - 3 * HEARTBEAT_S <= replica.fresh_as_of <= group.now for replica in members
    )


def test_a_cut_off_leader_s_own_state_grows_old() -> None:
    group = Group([[], [], []])
    leader = group.elect("n0")
    leader.replica.applied_to(leader.replica.appliable)
    group.pass_time(3 * HEARTBEAT_S)
    assert group.now - leader.replica.fresh_as_of <= 2 * HEARTBEAT_S
    group.silent = {"n1", "n2"}
    cut_at = group.now
    group.pass_time(4 * HEARTBEAT_S)
    assert leader.role is Role.LEADER
    assert leader.replica.fresh_as_of <= cut_at


def test_another_preference_is_gone_by_at_once_and_the_same_one_keeps_its_waits() -> None:
    group = preferring_n0()
    handover = group["n1"].replica.handover
    before = handover._preferred
    handover.prefer("n0")
    assert handover._preferred is before
    handover.prefer("n2")
    assert handover._preferred.name == "n2"
    handover.prefer(None)
    assert handover._preferred.name is None
