"""What is done without a turn is what a turn would have done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.core.member_state import Role
from dledger.core.membership.configuration_change import Remove
from dledger.core.messages import Heartbeat, HeartbeatResponse, Phase, PushResponse, VoteRequest
from dledger.core.replica import Replica
from dledger.core.replica_config import LEAST_HEARTBEAT_GAP
from dledger.core.uneventful import (
    acknowledged,
    answered_again,
    beat_again,
    hear_again,
    persisted_again,
)
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group, Member


def at_rest() -> Group:
    """n0 leads, and everybody has everything and knows so."""
    group = Group([[], [], []])
    group.elect("n0")
    group.propose("n0", 3)
    group.pass_time(2 * HEARTBEAT_S)
    assert {member.committed for member in group.members.values()} == {3}
    for member in group.members.values():
        member.replica.applied_to(3)
    group.now = group["n0"].replica.heartbeat_at
    return group


def seen(member: Member) -> tuple[object, ...]:
    """Everything that a heartbeat or its answer may change."""
    replica = member.replica
    return (
        (member.role, member.term, member.committed, replica.state.leader),
        (replica.elector.deadline, replica.elector.last_leader_contact),
        (replica.fresh_as_of, replica.next_deadline()),
        [(d.peer, d.last_answer_at, d.phase) for d in replica.dispatchers.values()],
        replica.reads.round if replica.reads is not None else None,
    )


def test_a_leader_at_rest_says_without_a_turn_what_it_says_in_one() -> None:
    whole, short = at_rest(), at_rest()
    whole["n0"].replica.tick(whole.now)
    said = whole["n0"].leaving(whole.now)
    beat = beat_again(short["n0"].replica, short.now)
    assert [(peer, beat) for peer in ("n1", "n2")] == said
    assert seen(short["n0"]) == seen(whole["n0"])
    assert short["n0"].leaving(short.now) == []


def test_a_follower_hears_without_a_turn_what_it_hears_in_one() -> None:
    whole, short = at_rest(), at_rest()
    beat = Heartbeat(whole["n0"].term, 3, 99)
    whole["n1"].replica.receive("n0", beat, whole.now)
    ((_, answer),) = whole["n1"].leaving(whole.now)
    assert hear_again(short["n1"].replica, "n0", beat, short.now) == answer
    assert seen(short["n1"]) == seen(whole["n1"])
    assert short["n1"].leaving(short.now) == []


def test_a_leader_notes_without_a_turn_the_answer_it_notes_in_one() -> None:
    whole, short = at_rest(), at_rest()
    for group in (whole, short):
        group.now += 0.01
    answer = HeartbeatResponse(whole["n0"].term, 1)
    whole["n0"].replica.receive("n1", answer, whole.now)
    whole["n0"].leaving(whole.now)
    assert answered_again(short["n0"].replica, "n1", answer, short.now)
    assert seen(short["n0"]) == seen(whole["n0"])


def propose(group: Group) -> None:
    group.propose("n0", 1)


def propose_and_sync_here(group: Group) -> None:
    group.propose("n0", 1)
    group["n0"].leaving(group.now)
    group["n0"].sync(group.now)


def wait_for_the_own_disk(group: Group) -> None:
    group.propose("n0", 1)
    for step in range(3):
        group.now += HEARTBEAT_S / 10
        for name in group.names:
            if name != "n0":
                group[name].sync(group.now)
            for receiver, message in group[name].leaving(group.now):
                group[receiver].replica.receive(name, message, group.now)
        assert step == 0 or group["n0"].committed == 4
    assert group["n0"].replica.state.durable == 3
    assert group["n0"].replica.next_deadline() == group["n0"].replica.heartbeat_at
    group.now = group["n0"].replica.heartbeat_at


def ask_for_a_read(group: Group) -> None:
    group["n0"].replica.request_read(1)


def hand_over(group: Group) -> None:
    group["n0"].replica.transfer_leadership("n1", group.now)


def lose_a_connection(group: Group) -> None:
    group["n0"].replica.unreachable("n1", group.now)


def hear_of_another_term(group: Group) -> None:
    group["n0"].replica.receive("n1", HeartbeatResponse(99, 0), group.now)


def hear_nobody(group: Group) -> None:
    group.now += TIMEOUT_S / 2


def too_early(group: Group) -> None:
    group.now -= HEARTBEAT_S / 2


@pytest.mark.parametrize(
    "happens",
    [
        *(propose, propose_and_sync_here, wait_for_the_own_disk, ask_for_a_read, hand_over),
        *(lose_a_connection, hear_of_another_term, hear_nobody, too_early),
    ],
)
def test_a_leader_with_anything_else_to_do_takes_a_turn(happens: Callable[[Group], None]) -> None:
    group = at_rest()
    happens(group)
    before = seen(group["n0"])
    assert beat_again(group["n0"].replica, group.now) is None
    assert seen(group["n0"]) == before


@pytest.mark.parametrize(
    ("sender", "beat"),
    [
        ("n0", Heartbeat(2, 3, 9)),  # of a later term
        ("n0", Heartbeat(0, 3, 9)),  # of an earlier one
        ("n2", Heartbeat(1, 3, 9)),  # of somebody else
        ("n0", Heartbeat(1, 4, 9)),  # with news of the commit index
    ],
)
def test_a_follower_takes_a_turn_for_a_heartbeat_with_news(sender: str, beat: Heartbeat) -> None:
    group = at_rest()
    assert group["n1"].term == 1
    before = seen(group["n1"])
    assert hear_again(group["n1"].replica, sender, beat, group.now) is None
    assert seen(group["n1"]) == before


def test_a_member_that_stands_or_forgot_its_leader_takes_a_turn_for_a_heartbeat() -> None:
    group = at_rest()
    group["n1"].replica.forget_leader()
    assert hear_again(group["n1"].replica, "n0", Heartbeat(1, 3, 9), group.now) is None
    group["n2"].replica.tick(group.now + 3 * TIMEOUT_S)
    assert group["n2"].role is Role.PRE_CANDIDATE
    assert hear_again(group["n2"].replica, "n0", Heartbeat(1, 3, 9), group.now) is None


def test_a_leader_whose_follower_has_gone_on_learns_so_by_its_answer() -> None:
    group = at_rest()
    leader, follower = group["n0"].replica, group["n1"]
    request = VoteRequest(9, 3, 1, pre=False, handed_over=True)
    follower.replica.receive("n2", request, group.now)
    follower.sync(group.now)
    follower.leaving(group.now)
    beat = beat_again(leader, group.now)
    assert beat is not None
    assert hear_again(follower.replica, "n0", beat, group.now) is None
    follower.replica.receive("n0", beat, group.now)
    ((_, answer),) = follower.leaving(group.now)
    assert isinstance(answer, HeartbeatResponse)
    assert not answered_again(leader, "n1", answer, group.now)
    leader.receive("n1", answer, group.now)
    assert group["n0"].role is Role.FOLLOWER
    assert group["n0"].term == 9


def test_an_answer_that_a_read_waits_for_takes_a_turn() -> None:
    group = at_rest()
    leader = group["n0"].replica
    leader.request_read(7)
    ((_, beat), _) = group["n0"].leaving(group.now)
    assert isinstance(beat, Heartbeat)
    answer = HeartbeatResponse(1, beat.round)
    assert not answered_again(leader, "n1", answer, group.now)
    leader.receive("n1", answer, group.now)
    assert [ready.ticket for ready in leader.take_messages(group.now).reads_ready] == [7]


def test_a_leader_with_a_lease_takes_turns_for_what_prolongs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = at_rest()
    monkeypatch.setattr(Replica, "lease", property(lambda replica: object()))
    assert beat_again(group["n0"].replica, group.now) is None
    assert not answered_again(group["n0"].replica, "n1", HeartbeatResponse(1, 1, 500), group.now)


def test_a_read_is_not_confirmed_by_heartbeats_from_before_it() -> None:
    group = at_rest()
    leader = group["n0"].replica
    beat = beat_again(leader, group.now)
    assert beat is not None
    leader.request_read(7)
    leader.receive("n1", HeartbeatResponse(1, beat.round), group.now)
    assert leader.take_messages(group.now).reads_ready == []


def test_answers_to_one_who_does_not_lead_or_of_a_stranger_take_a_turn() -> None:
    group = at_rest()
    answer = HeartbeatResponse(1, 1)
    assert not answered_again(group["n1"].replica, "n0", answer, group.now)
    assert not answered_again(group["n0"].replica, "n9", answer, group.now)


@pytest.mark.parametrize("now", [0.0, 0.05, 0.0999999, 0.1, 7.3, 1e6 + 1 / 3])
def test_aligned_heartbeats_meet_at_multiples_of_the_interval(now: float) -> None:
    config = at_rest()["n0"].replica.config._replace(aligned_heartbeats=True)
    due = config.next_heartbeat_at(now)
    interval = config.heartbeat_interval_s
    assert LEAST_HEARTBEAT_GAP * interval <= due - now <= (1 + LEAST_HEARTBEAT_GAP) * interval
    assert abs(due / interval - round(due / interval)) < 1e-6
    assert config.next_heartbeat_at(due) - due > interval / 2
    assert config._replace(aligned_heartbeats=False).next_heartbeat_at(now) == now + interval


def late_acknowledgement() -> tuple[Group, PushResponse]:
    """n0 has committed an entry with n1 and told its application; what n2 says of it comes now."""
    group = at_rest()
    group.propose("n0", 1)
    pushes = dict(group["n0"].leaving(group.now))
    group["n0"].sync(group.now)
    answers = {}
    for name in ("n1", "n2"):
        group[name].replica.receive("n0", pushes[name], group.now)
        group[name].leaving(group.now)
        group[name].sync(group.now)
        ((_, answers[name]),) = group[name].leaving(group.now)
    leader = group["n0"].replica
    leader.receive("n1", answers["n1"], group.now)
    assert group["n0"].committed == 4
    group["n0"].leaving(group.now)
    leader.applied_to(4)
    late = answers["n2"]
    assert isinstance(late, PushResponse)
    assert (late.phase, late.ok, late.match) == (Phase.APPEND, True, 4)
    group.now += 0.001
    return group, late


def counted(member: Member) -> tuple[object, ...]:
    """Everything that an acknowledgement may change."""
    replica = member.replica
    acks = None
    if replica.acks is not None:
        acks = [replica.acks.acknowledge(peer, 4) for peer in ("n0", "n1", "n2")]
    peers = [(d.match_index, d.next_index, d.answered) for d in replica.dispatchers.values()]
    return seen(member), acks, peers


def test_a_leader_commits_without_a_turn_what_it_commits_in_one() -> None:
    (whole, late), (short, _) = late_acknowledgement(), late_acknowledgement()
    for group in (whole, short):
        group.propose("n0", 1)
        group["n0"].leaving(group.now)
        group["n0"].sync(group.now)
    late = late._replace(index=5, match=5, verified=5, last_index=5)
    whole["n0"].replica.receive("n2", late, whole.now)
    assert whole["n0"].leaving(whole.now) == []
    assert acknowledged(short["n0"].replica, "n2", late, short.now)
    assert short["n0"].leaving(short.now) == []
    assert whole["n0"].committed == short["n0"].committed == 5
    assert counted(short["n0"]) == counted(whole["n0"])


def test_a_leader_notes_without_a_turn_who_has_what_is_committed_already() -> None:
    (whole, late), (short, _) = late_acknowledgement(), late_acknowledgement()
    whole["n0"].replica.receive("n2", late, whole.now)
    assert whole["n0"].leaving(whole.now) == []
    assert acknowledged(short["n0"].replica, "n2", late, short.now)
    assert short["n0"].leaving(short.now) == []
    assert counted(short["n0"]) == counted(whole["n0"])


def makes_room_for_more(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    group.propose("n0", 1)
    return "n2", late


def completes_a_transfer(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    hand_over(group)
    return "n2", late


def comes_after_a_loss(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    group["n0"].replica.unreachable("n2", group.now)
    return "n2", late


def is_a_refusal(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    return "n2", late._replace(ok=False)


def is_in_doubt(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    return "n2", late._replace(proven=False)


def is_proven_now(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    group["n0"].replica.dispatchers["n2"].proven = False
    return "n2", late


def is_of_a_later_term(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    return "n2", late._replace(term=9)


def is_a_strangers(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    return "n9", late


def lets_a_learner_vote(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    group["n0"].replica.followers.changing = True
    return "n2", late


def has_a_read_before_it(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    group["n0"].replica.request_read(1)
    return "n2", late


def decides_a_change(group: Group, late: PushResponse) -> tuple[str, PushResponse]:
    group["n0"].replica.propose_change([Remove("n1")])
    group["n0"].leaving(group.now)
    group["n0"].sync(group.now)
    return "n2", late._replace(index=5, match=5, verified=5, last_index=5)


@pytest.mark.parametrize(
    "what",
    [
        *(makes_room_for_more, completes_a_transfer, comes_after_a_loss, has_a_read_before_it),
        *(is_a_refusal, is_in_doubt, is_proven_now, is_of_a_later_term, is_a_strangers),
        *(lets_a_learner_vote, decides_a_change),
    ],
)
def test_a_leader_takes_a_turn_for_an_acknowledgement_that(
    what: Callable[[Group, PushResponse], tuple[str, PushResponse]],
) -> None:
    group, late = late_acknowledgement()
    sender, answer = what(group, late)
    leader = group["n0"].replica
    before = seen(group["n0"]), [d.match_index for d in leader.dispatchers.values()]
    assert not acknowledged(leader, sender, answer, group.now)
    assert (seen(group["n0"]), [d.match_index for d in leader.dispatchers.values()]) == before


def test_one_who_does_not_lead_takes_a_turn_for_an_acknowledgement() -> None:
    group, late = late_acknowledgement()
    assert not acknowledged(group["n1"].replica, "n2", late, group.now)


def test_a_leaders_own_sync_needs_no_turn_while_nobody_else_has_the_entry() -> None:
    group = at_rest()
    group.propose("n0", 1)
    pushes = dict(group["n0"].leaving(group.now))
    leader = group["n0"].replica
    assert persisted_again(leader, 4, leader.handler.epoch, group.now)
    assert (leader.state.durable, group["n0"].committed) == (4, 3)
    assert group["n0"].leaving(group.now) == []
    group["n1"].replica.receive("n0", pushes["n1"], group.now)
    group["n1"].leaving(group.now)
    group["n1"].sync(group.now)
    ((_, answer),) = group["n1"].leaving(group.now)
    leader.receive("n1", answer, group.now)
    assert group["n0"].committed == 4


def test_a_leaders_own_sync_takes_a_turn_when_it_is_the_one_that_commits() -> None:
    group = at_rest()
    group.propose("n0", 1)
    pushes = dict(group["n0"].leaving(group.now))
    group["n1"].replica.receive("n0", pushes["n1"], group.now)
    group["n1"].leaving(group.now)
    group["n1"].sync(group.now)
    ((_, answer),) = group["n1"].leaving(group.now)
    leader = group["n0"].replica
    leader.receive("n1", answer, group.now)
    assert group["n0"].committed == 3
    assert not persisted_again(leader, 4, leader.handler.epoch, group.now)
    assert group["n0"].committed == 4


def test_a_followers_sync_takes_a_turn_for_it_has_something_to_say() -> None:
    group = at_rest()
    group.propose("n0", 1)
    pushes = dict(group["n0"].leaving(group.now))
    follower = group["n1"].replica
    follower.receive("n0", pushes["n1"], group.now)
    assert group["n1"].leaving(group.now) == []
    assert not persisted_again(follower, 4, follower.handler.epoch, group.now)
    ((_, answer),) = group["n1"].leaving(group.now)
    assert isinstance(answer, PushResponse)
    assert answer.match == 4
