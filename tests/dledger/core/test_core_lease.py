"""Lease reads: served without a round, and never when somebody else could lead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.membership.membership import Membership
from dledger.core.membership.quorum import Majority
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.reads.leader_lease import LeaderLease
from dledger.core.reads.read_index import ReadReady
from dledger.core.replica import Outgoing, Replica, ReplicaConfig
from dledger.errors import LeaderKept
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import (
    HEARTBEAT_S,
    TIMEOUT_S,
    EntriesAtOnce,
    take_messages,
    view_of,
)

THREE = ["n0", "n1", "n2"]
DRIFT = 0.1
LEASE_S = TIMEOUT_S * (1 - DRIFT) / (1 + DRIFT)


def role(replica: Replica) -> Role:
    return replica.state.role


def sync(replica: Replica, now: float) -> None:
    """Make everything durable, and apply it."""
    record = replica.take_writes().hard_state
    replica.persisted(replica.view.last_index, replica.handler.epoch, record, now)
    replica.applied_to(replica.appliable)


def member(
    name: str = "n0", now: float = 0.0, drift: float | None = DRIFT, term: int = 0
) -> Replica:
    config = ReplicaConfig(name, configuration(THREE), TIMEOUT_S, HEARTBEAT_S, drift)
    view, state = view_of([]), HardState(term)
    return Replica(config, view, state, EntriesAtOnce(9), lambda: 0.5, now)


def leave(replica: Replica, now: float) -> list[Outgoing]:
    sync(replica, now)
    return list(take_messages(replica, now).outgoing)


def leader(now: float = 2.0, drift: float | None = DRIFT) -> Replica:
    """n0, which leads term 1 and has committed its no-op; nobody has answered a heartbeat."""
    replica = member(drift=drift)
    replica.tick(now)
    replica.receive("n1", VoteResponse(1, granted=True, pre=True), now)
    sync(replica, now)
    replica.receive("n1", VoteResponse(1, granted=True, pre=False), now)
    assert role(replica) is Role.LEADER
    leave(replica, now)
    replica.state.commit(0)
    replica.applied_to(0)
    return replica


def beat(replica: Replica, now: float) -> int:
    """Let the leader send a heartbeat now; its round."""
    replica.leadership.heartbeat_at = replica.patience.at(now)
    replica.tick(now)
    rounds = [m.round for _, m in leave(replica, now) if isinstance(m, Heartbeat)]
    return rounds[-1]


def promised(replica: Replica, now: float) -> HeartbeatResponse:
    (answer,) = [m for _, m in leave(replica, now) if isinstance(m, HeartbeatResponse)]
    return answer


def read(replica: Replica, now: float) -> list[ReadReady]:
    replica.request_read(1)
    sync(replica, now)
    return list(take_messages(replica, now).reads_ready)


def answer(replica: Replica, round_number: int, now: float, promised_ms: int = 500) -> None:
    replica.receive("n1", HeartbeatResponse(1, round_number, promised_ms), now)


def test_a_read_within_the_lease_needs_no_round() -> None:
    replica = leader()
    answer(replica, beat(replica, 2.0), 2.01)
    replica.request_read(1)
    messages = take_messages(replica, 2.1)
    assert messages.reads_ready == [ReadReady(1, 0, by_lease=True)]
    assert not any(isinstance(m, Heartbeat) for _, m in messages.outgoing)


def test_a_lease_is_counted_by_the_voters_of_the_newest_change() -> None:
    lease = LeaderLease("n0", Majority(["n0", "n1", "n2"]), 0.1)
    lease.sent(1, 10.0)
    lease.confirm("n1", 1, 500)
    assert lease.holds(10.1)
    five = ["n0", "n1", "n2", "n3", "n4"]
    lease.follow(Majority(five), five)
    assert not lease.holds(10.1)
    lease.confirm("n4", 1, 500)
    assert lease.holds(10.1)


def test_a_read_after_the_lease_falls_back_to_a_round() -> None:
    replica = leader()
    answer(replica, beat(replica, 2.0), 2.01)
    assert read(replica, 2.0 + LEASE_S) == []
    number = replica.reads.round  # type: ignore[union-attr]
    answer(replica, number, 2.42)
    assert list(take_messages(replica, 2.42).reads_ready) == [ReadReady(1, 0, by_lease=True)]


def test_a_follower_s_question_is_answered_by_the_lease() -> None:
    replica = leader()
    answer(replica, beat(replica, 2.0), 2.01)
    replica.receive("n2", ReadRequest(1, 77), 2.1)
    assert ("n2", ReadResponse(1, 77, 0)) in take_messages(replica, 2.1).outgoing


def test_the_lease_counts_from_the_sending_and_not_from_the_answer() -> None:
    replica = leader()
    number = beat(replica, 2.0)
    answer(replica, number, 2.0 + 0.9 * LEASE_S)
    assert replica.lease is not None
    assert replica.lease.until == pytest.approx(2.0 + LEASE_S)


def test_an_answer_to_an_older_round_counts_from_the_sending_of_that_round() -> None:
    lease = LeaderLease("n0", Majority(THREE), DRIFT)
    lease.sent(1, 0.0)
    lease.sent(2, 0.1)
    lease.confirm("n1", 1, 500)
    assert lease.until == pytest.approx(LEASE_S)
    lease.confirm("n1", 2, 500)
    assert lease.until == pytest.approx(0.1 + LEASE_S)


def test_the_lease_is_shorter_than_the_promise_by_what_two_clocks_may_differ() -> None:
    assert leader().lease is not None
    lease = LeaderLease("n0", Majority(THREE), max_drift=0.3)
    lease.sent(1, 0.0)
    lease.confirm("n1", 1, 500)
    assert lease.until == pytest.approx(0.5 * 0.7 / 1.3)


@given(
    drift=st.floats(0.001, 0.3),
    slow=st.floats(0.0, 1.0),
    fast=st.floats(0.0, 1.0),
    delay_s=st.floats(0.0, 1.0),
)
def test_no_two_clocks_within_the_bound_let_a_lease_outlast_a_promise(
    drift: float, slow: float, fast: float, delay_s: float
) -> None:
    lease = LeaderLease("n0", Majority(THREE), drift)
    leader_rate, voter_rate = 1 - drift * slow, 1 + drift * fast
    lease.sent(1, 0.0)
    lease.confirm("n1", 1, 500)
    lease_ends = lease.until / leader_rate
    promise_ends = delay_s + 0.5 / voter_rate
    assert lease_ends <= promise_ends + 1e-9


def test_one_voter_s_promise_is_no_lease_in_a_group_of_five() -> None:
    lease = LeaderLease("a", Majority("abcde"), DRIFT)
    lease.sent(1, 0.0)
    lease.confirm("b", 1, 500)
    assert not lease.holds(0.0)
    lease.confirm("c", 1, 500)
    assert lease.holds(0.0)


@pytest.mark.parametrize("number", [0, 2, 99])
def test_an_answer_to_a_round_that_was_not_sent_gives_no_lease(number: int) -> None:
    lease = LeaderLease("n0", Majority(THREE), DRIFT)
    lease.confirm("n1", 1, 500)
    lease.sent(1, 0.0)
    lease.confirm("n1", number, 500)
    assert not lease.holds(0.0)


def test_a_voter_that_promises_nothing_gives_no_lease() -> None:
    replica = leader()
    answer(replica, beat(replica, 2.0), 2.01, promised_ms=0)
    assert read(replica, 2.02) == []


def test_without_a_declared_bound_there_is_no_lease_and_no_promise() -> None:
    replica = leader(drift=None)
    answer(replica, beat(replica, 2.0), 2.01)
    assert replica.lease is None
    assert read(replica, 2.02) == []
    follower = member(drift=None)
    follower.receive("n1", Heartbeat(1, -1, 4), 0.0)
    assert promised(follower, 0.0).promised_ms == 0


def test_a_leader_serves_no_lease_read_before_its_term_has_committed() -> None:
    replica = leader()
    replica.state.applied = replica.state.committed = -1
    answer(replica, beat(replica, 2.0), 2.01)
    assert replica.lease is not None
    assert replica.lease.holds(2.1)
    assert read(replica, 2.1) == []


@pytest.mark.parametrize("given_up", [True, False])
def test_the_lease_is_void_once_somebody_was_told_to_stand(given_up: bool) -> None:
    replica = leader()
    answer(replica, beat(replica, 2.0), 2.01)
    assert replica.lease is not None
    replica.dispatchers["n1"].match_index = replica.view.last_index
    replica.transfer_leadership("n1", 2.02)
    assert any(isinstance(m, TimeoutNow) for _, m in leave(replica, 2.02))
    assert not replica.lease.holds(2.03)
    if given_up:
        # The message may still be on its way: nothing brings the lease back in this term.
        replica.transfer_leadership("n0", 2.04)
        answer(replica, beat(replica, 2.05), 2.06)
        assert not replica.lease.holds(2.06)


def test_a_lease_ends_with_the_leadership() -> None:
    replica = leader()
    answer(replica, beat(replica, 2.0), 2.01)
    replica.receive("n2", HeartbeatResponse(5, 0), 2.02)
    assert role(replica) is Role.FOLLOWER
    assert replica.lease is None
    assert read(replica, 2.03) == []


def test_a_follower_promises_one_election_timeout() -> None:
    follower = member()
    follower.receive("n1", Heartbeat(1, -1, 4), 1.0)
    assert promised(follower, 1.0) == HeartbeatResponse(1, 4, 500)


@pytest.mark.parametrize("pre", [True, False])
def test_news_of_a_higher_term_takes_no_promise_back(pre: bool) -> None:
    # A late answer from its own time as a candidate shows it a term that nobody leads.
    follower = member()
    follower.receive("n1", Heartbeat(1, -1, 4), 1.0)
    leave(follower, 1.0)
    follower.receive("n2", VoteResponse(9, granted=False, pre=False), 1.1)
    assert follower.state.term == 9
    for at, granted in ((1.0 + 0.99 * TIMEOUT_S, False), (1.0 + TIMEOUT_S, True)):
        follower.receive("n2", VoteRequest(10, 5, 9, pre=pre), at)
        votes = [m for _, m in leave(follower, at) if isinstance(m, VoteResponse)]
        assert [vote.granted for vote in votes] == [granted]


def test_a_vote_in_the_present_term_is_promised_away_too() -> None:
    follower = member()
    follower.receive("n1", Heartbeat(1, -1, 4), 1.0)
    follower.receive("n2", VoteResponse(9, granted=False, pre=False), 1.1)
    follower.receive("n2", VoteRequest(9, 5, 8, pre=False), 1.2)
    votes = [m for _, m in leave(follower, 1.2) if isinstance(m, VoteResponse)]
    assert [vote.granted for vote in votes] == [False]


def test_a_restart_takes_no_promise_back() -> None:
    restarted = member(now=7.0, term=1)
    for at, granted in ((7.0 + 0.99 * TIMEOUT_S, False), (7.0 + TIMEOUT_S, True)):
        restarted.receive("n2", VoteRequest(2, 5, 1, pre=False), at)
        votes = [m for _, m in leave(restarted, at) if isinstance(m, VoteResponse)]
        assert [vote.granted for vote in votes] == [granted]


def test_a_member_does_not_stand_within_its_own_promise_after_a_restart() -> None:
    assert member(now=7.0, term=1).elector.deadline >= 7.0 + TIMEOUT_S


def left_alone(drift: float | None, now: float) -> Replica:
    """n0 starts over a log that says: n1 led, and was removed; nobody else is left."""
    both = configuration(["n0", "n1"])
    membership = Membership(both)
    membership.appended(3, NumberedConfiguration(-1, configuration(["n0"])))
    config = ReplicaConfig("n0", both, TIMEOUT_S, HEARTBEAT_S, drift)
    view, state = view_of([1] * 5), HardState(1, "n1", 3)
    return Replica(config, view, state, EntriesAtOnce(9), lambda: 0.5, now, membership)


def test_the_only_voter_that_is_left_does_not_stand_within_its_own_promise_after_a_restart() -> (
    None
):
    replica = left_alone(DRIFT, 7.0)
    assert replica.elector.is_alone
    replica.tick(7.0 + TIMEOUT_S - 0.001)
    assert role(replica) is Role.FOLLOWER
    replica.tick(7.0 + TIMEOUT_S)
    sync(replica, 7.0 + TIMEOUT_S)
    assert role(replica) is Role.LEADER


def test_the_only_voter_stands_at_once_where_it_has_promised_nothing() -> None:
    replica = left_alone(None, 7.0)
    replica.tick(7.0)
    sync(replica, 7.0)
    assert role(replica) is Role.LEADER
    config = ReplicaConfig("n0", configuration(["n0"]), TIMEOUT_S, HEARTBEAT_S, DRIFT)
    always = Replica(config, view_of([]), HardState(0), EntriesAtOnce(9), lambda: 0.5, 7.0)
    always.tick(7.0)
    sync(always, 7.0)
    assert role(always) is Role.LEADER


def test_a_member_with_lease_reads_does_not_forget_its_leader() -> None:
    follower = member()
    follower.receive("n1", Heartbeat(1, -1, 4), 1.0)
    with pytest.raises(LeaderKept) as caught:
        follower.forget_leader()
    assert caught.value.leader == "n1"
    assert follower.state.leader == "n1"


def test_a_candidate_that_was_told_to_stand_is_exempt_from_promises() -> None:
    follower = member()
    follower.receive("n1", Heartbeat(1, -1, 4), 1.0)
    follower.receive("n2", VoteRequest(2, 5, 1, pre=False, handed_over=True), 1.1)
    votes = [m for _, m in leave(follower, 1.1) if isinstance(m, VoteResponse)]
    assert [vote.granted for vote in votes] == [True]


@pytest.mark.parametrize("paused_s", [LEASE_S, 1.0, 30.0])
def test_a_lease_does_not_last_longer_because_its_leader_was_paused(paused_s: float) -> None:
    replica = leader()
    replica.patience.look(2.0)
    answer(replica, beat(replica, 2.0), 2.01)
    lease = replica.lease
    assert lease is not None
    assert lease.until == pytest.approx(2.0 + LEASE_S)
    replica.patience.look(2.0 + paused_s)
    assert read(replica, 2.0 + paused_s) == []
    assert lease.until == pytest.approx(2.0 + LEASE_S)


def test_a_lease_that_begins_after_a_pause_lasts_as_long_as_any() -> None:
    replica = leader()
    replica.patience.look(2.0)
    replica.patience.look(9.0)
    answer(replica, beat(replica, 9.0), 9.01)
    assert replica.lease is not None
    assert replica.lease.until == pytest.approx(9.0 + LEASE_S)
    assert read(replica, 9.1) == [ReadReady(1, 0, by_lease=True)]


def test_a_promise_lasts_at_least_as_long_as_it_was_given_for() -> None:
    voter = member("n1")
    voter.patience.look(5.0)
    voter.receive("n0", Heartbeat(1, -1, 1), 5.0)
    assert promised(voter, 5.0).promised_ms == TIMEOUT_S * 1000
    voter.patience.look(5.0 + 0.9 * TIMEOUT_S)  # it slept nearly all the time
    voter.receive("n2", VoteRequest(2, -1, 0, pre=False), 5.0 + 0.9 * TIMEOUT_S)
    assert voter.state.term == 1
