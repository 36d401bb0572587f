"""A member that starts with an older folder is not believed: the others remember its promises."""

from __future__ import annotations

import pytest

from dledger.core.admission.recollections import MAX_REMEMBERED, Promised, Recollections
from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.member_state import MemberState, Role
from dledger.core.membership.membership import Membership
from dledger.core.messages import (
    Message,
    Recall,
    Recollection,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.replica import Replica
from dledger.core.replica_config import ReplicaConfig
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group, Member, view_of

PATIENCE_S = 0.5 * TIMEOUT_S


def restored(
    group: Group,
    name: str,
    terms: list[int],
    hard_state: HardState,
    standing: Standing = Standing.PROVEN,
) -> Member:
    """The member starts with this folder, and asks the others what they remember."""
    member = Member(name, group.names, now=group.now)
    config = ReplicaConfig(
        name, configuration(group.names), TIMEOUT_S, HEARTBEAT_S, recall_timeouts=0.5
    )
    batches = member.replica.followers._batches
    replica = Replica(
        config,
        view_of(terms),
        hard_state,
        batches,
        lambda: 0.5,
        group.now,
        Membership(configuration(group.names)),
        standing=standing,
    )
    member.begin(replica, {}, standing)
    group.members[name] = member
    return member


def led(entries: int = 3) -> Group:
    """n0 leads term 2, and everybody has the entries 0 to `entries`."""
    group = Group([[1], [1], [1]])
    group.elect("n0")
    group.propose("n0", entries)
    group.pass_time(0.3)
    assert group["n0"].committed == entries + 1
    return group


def test_a_folder_of_before_a_restart_is_believed() -> None:
    group = led()
    state = group["n1"].replica.state
    member = restored(group, "n1", group["n1"].log, HardState(state.term, state.voted_for))
    assert member.replica.state.recalls
    group.run()
    group["n1"].replica.tick(group.now)
    assert member.replica.state.proven
    assert not member.replica.state.recalls


@pytest.mark.parametrize(
    ("terms", "hard_state"),
    [
        ([1, 2, 2], HardState(2, "n0")),  # the log went back
        ([1, 2, 2, 2, 2], HardState(1)),  # so did the term
        ([1], HardState(1)),  # and both
        ([1, 2, 2, 2, 2], HardState(2)),  # and the vote alone
    ],
    ids=["log", "term", "log and term", "vote"],
)
def test_an_older_folder_is_put_in_doubt_and_proves_itself(
    terms: list[int], hard_state: HardState
) -> None:
    group = led()
    member = restored(group, "n1", terms, hard_state)
    group.run(until=lambda: not member.replica.state.proven)
    assert member.replica.admission.standing is Standing.LOST
    group.pass_time(0.5)
    assert member.replica.state.proven  # the leader has proven it meanwhile
    assert member.log == group["n0"].log


def test_an_older_folder_elects_no_leader_that_lacks_what_it_acknowledged() -> None:
    """n2 lags, n1 was restored, and n0, which has everything, does not lead any more."""
    group = led()
    group.silent.add("n2")
    group.propose("n0", 5)
    group.run()
    group["n0"].replica.forget_leader()
    assert group["n0"].committed == 9
    group.silent.clear()
    behind = group["n2"].log
    restored(group, "n1", behind, HardState(2, "n0"))
    # The restored member and the one that lags hear each other first.
    group.silent.add("n0")
    group["n2"].replica.elector.forget_leader()
    group["n2"].replica.elector.campaign(group.now)
    group.run()
    roles = [group["n2"].role]
    group.silent.clear()
    group["n1"].replica.reachable("n0", group.now)
    group.run()
    assert not group["n1"].replica.state.proven
    group.stand("n2")
    group.run()
    assert Role.LEADER not in (*roles, group["n2"].role)


def votes(member: Member, message: Message, now: float) -> bool:
    member.replica.receive("n2", message, now)
    member.sync(now)
    answers = [m for _, m in member.leaving(now) if isinstance(m, VoteResponse)]
    return any(answer.granted for answer in answers)


@pytest.mark.parametrize("pre", [True, False])
def test_a_member_votes_once_everybody_has_answered_or_its_patience_is_over(pre: bool) -> None:
    group = Group([[1], [1], [1]])
    request = VoteRequest(2, 0, 1, pre)
    member = restored(group, "n1", [1], HardState(1))
    assert not votes(member, request, 0.0)
    for peer in ("n0", "n2"):
        number = member.replica.recalling._number
        member.replica.receive(peer, Recollection(1, number, 1, False, 0), 0.0)
    member.replica.tick(0.0)
    assert votes(member, request, 0.0)

    member = restored(group, "n1", [1], HardState(1))
    member.replica.tick(PATIENCE_S - 0.001)
    assert not votes(member, request, PATIENCE_S - 0.001)
    member.replica.tick(PATIENCE_S)
    assert votes(member, request, PATIENCE_S)


def test_a_member_that_asks_does_not_stand_even_when_its_leader_tells_it_to() -> None:
    group = led()
    state = group["n1"].replica.state
    member = restored(group, "n1", group["n1"].log, HardState(state.term, state.voted_for))
    member.replica.receive("n0", TimeoutNow(2), group.now)
    assert member.role is Role.FOLLOWER


def test_the_question_is_repeated_and_a_peer_that_can_be_reached_is_asked_at_once() -> None:
    group = Group([[1], [1], [1]])
    member = restored(group, "n1", [1], HardState(1))

    def asked(now: float) -> list[str]:
        return [peer for peer, m in member.leaving(now) if isinstance(m, Recall)]

    assert asked(0.0) == ["n0", "n2"]
    assert asked(HEARTBEAT_S / 2) == []
    assert asked(HEARTBEAT_S) == ["n0", "n2"]
    member.replica.receive("n0", Recollection(1, member.replica.recalling._number, 1, False, 0), 0)
    member.replica.reachable("n2", HEARTBEAT_S)
    assert asked(HEARTBEAT_S) == ["n2"]


def test_answers_to_an_earlier_process_and_late_ones_count_for_nothing() -> None:
    group = Group([[1], [1], [1]])
    member = restored(group, "n1", [1], HardState(1))
    number = member.replica.recalling._number
    member.replica.receive("n0", Recollection(1, number + 1, 9, True, 9), 0.0)
    assert member.replica.state.proven
    member.replica.tick(PATIENCE_S)
    member.replica.receive("n0", Recollection(1, number, 9, True, 9), PATIENCE_S)
    assert member.replica.state.proven


@pytest.mark.parametrize("standing", [Standing.FRESH, Standing.LOST])
def test_a_member_in_doubt_need_not_ask(standing: Standing) -> None:
    group = Group([[1], [1], [1]])
    assert not restored(group, "n1", [1], HardState(1), standing).replica.state.recalls


def test_the_only_voter_asks_nobody() -> None:
    group = Group([[1]])
    assert not restored(group, "n0", [1], HardState(1)).replica.state.recalls


def test_what_followers_acknowledged_is_remembered_after_the_leadership() -> None:
    group = led()
    leader = group["n0"]
    leader.replica.receive("n2", VoteRequest(9, 99, 8, False, handed_over=True), group.now)
    assert leader.role is Role.FOLLOWER
    assert leader.replica.recollections.of("n1") == Promised(2, True, 4)
    assert leader.replica.recollections.of("n2") == Promised(9, False, 4)


def test_entries_that_are_not_committed_are_not_held_against_a_member() -> None:
    """A later leader may have cut them."""
    group = led()
    group.propose("n0", 3)
    leader = group["n0"].replica
    leader.dispatchers["n1"].match_index = 99
    assert leader.recollections.of("n1").held == leader.state.committed == 4


def test_a_granted_vote_is_remembered_and_a_pre_vote_is_not() -> None:
    group = Group([[1], [1], [1]])
    group.elect("n0")
    group["n0"].replica.receive("n0", VoteResponse(9, True, True), group.now)
    known = {name: group[name].replica.recollections.of("n0") for name in ("n1", "n2")}
    assert known["n1"].term == known["n2"].term == 2
    assert group["n0"].replica.recollections.of("n1") == Promised(2, True, 1)


def test_a_memory_keeps_only_so_many_members() -> None:
    state = MemberState("n0", Membership(configuration(["n0"])), HardState(1), 0)
    memory = Recollections(state, {})
    for number in range(MAX_REMEMBERED + 5):
        memory.entered(f"n{number}", 3)
    assert memory.of("n4") == Promised()
    assert memory.of("n5") == Promised(3)


def test_a_memory_of_a_term_only_grows() -> None:
    memory = Recollections(
        MemberState("n0", Membership(configuration(["n0"])), HardState(1), 0), {}
    )
    for term, voted in ((3, True), (2, False), (3, False)):
        memory.entered("n1", term, voted=voted)
    assert memory.of("n1") == Promised(3, True)
    memory.entered("n1", 4)
    assert memory.of("n1") == Promised(4, False)


def test_a_leader_counts_nothing_that_a_member_acknowledged_before_it_asks() -> None:
    """The folder may be older than the acknowledgement of an entry that is not committed yet."""
    group = led()
    group.silent.add("n2")
    group.propose("n0", 1)
    leader = group["n0"]
    acks = leader.replica.acks
    assert acks is not None
    acks.acknowledge("n1", 5)  # its own disk is slower
    leader.replica.receive("n1", Recall(2, 7), group.now)
    leader.sync(group.now)
    assert leader.committed == 4
    group.run()
    assert leader.committed == 5  # acknowledged anew


def test_a_follower_remembers_what_its_leader_had() -> None:
    group = led()
    for name in ("n1", "n2"):
        group[name].replica.forget_leader()
        assert group[name].replica.recollections.of("n0") == Promised(2, False, 4)


def test_a_leader_that_comes_back_with_an_older_folder_is_not_believed() -> None:
    group = led()
    member = restored(group, "n0", [1, 2, 2], HardState(2, "n0"))
    group.run(until=lambda: not member.replica.state.proven)
    assert member.replica.admission.standing is Standing.LOST


def test_what_a_member_promised_since_it_asks_is_not_held_against_it() -> None:
    """The answer comes late: the first one was lost."""
    group = led()
    state = group["n1"].replica.state
    member = restored(group, "n1", group["n1"].log, HardState(state.term, state.voted_for))
    group.run(dropped=lambda sender, receiver, message: isinstance(message, Recollection))
    group.propose("n0", 5)
    group.run(dropped=lambda sender, receiver, message: isinstance(message, Recollection))
    assert group["n0"].committed == 9
    assert member.replica.state.recalls
    group.now += HEARTBEAT_S
    group.run()
    group["n1"].replica.tick(group.now)
    assert member.replica.state.proven
    assert not member.replica.state.recalls
