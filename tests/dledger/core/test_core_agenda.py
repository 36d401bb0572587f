"""A turn may leave out exactly the steps that are not on the agenda."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from itertools import cycle
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from dledger.core.agenda import (
    ALL,
    APPLY,
    ASK,
    CONFIRM,
    FOLLOWER_SYNC,
    INSTALL,
    LEADER_SYNC,
    PLAN,
    PROPOSE,
    RECEIVE,
    REPLICATE,
    TELL,
    TICK,
    WRITE,
)
from dledger.core.member_state import Role
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import AddLearner, AddVoter, Remove
from dledger.core.messages import Heartbeat, HeartbeatResponse, Phase, PushResponse
from dledger.core.orphans import Orphans
from dledger.core.replica import Replica
from dledger.core.replica_config import LEAST_HEARTBEAT_GAP
from dledger.core.round_trip import LEAST_WAIT_S
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group
from tests.dledger.core.test_group_machine import CHOICE, GroupMachine
from tests.dledger.scenarios.scenario_member import ScenarioMember
from tests.examples import examples


def at_rest() -> Group:
    """n0 leads, and everybody has everything and knows so."""
    group = Group([[], [], []])
    group.elect("n0")
    group.propose("n0", 3)
    group.pass_time(2 * HEARTBEAT_S)
    assert {member.committed for member in group.members.values()} == {3}
    for member in group.members.values():
        member.replica.applied_to(3)
    group.now = group["n0"].replica.leadership.heartbeat_at
    return group


# What a turn does with the world, and not the core.
OUTSIDE = APPLY | FOLLOWER_SYNC | LEADER_SYNC | PLAN | PROPOSE | RECEIVE
CORE = ALL & ~OUTSIDE


def is_due(replica: Replica, now: float) -> bool:
    """Whether a turn now would visit a step of the core."""
    agenda = replica.agenda
    return bool((agenda.due | agenda.later) & CORE) or now >= replica.next_deadline()


def rested(group: Group) -> Group:
    """The group a moment after its heartbeats: nothing is due, and nothing has to be told."""
    for member in group.members.values():
        member.replica.tick(group.now)
    group.run()
    group.now += 0.001
    for name, member in group.members.items():
        member.turn.plan(group.now)
        member.turn.run(group.now)
        assert not is_due(member.replica, group.now), name
    return group


class Seen(NamedTuple):
    """What the steps of a turn change in a core, and what others watch of it."""

    role: Role
    term: int
    voted_for: str | None
    leader: str | None
    committed: int
    proven: bool
    orphans: Orphans | None
    configuration: int
    peers: tuple[tuple[str, bool], ...]
    transfers: bool

    @classmethod
    def of(cls, replica: Replica) -> Seen:
        state = replica.state
        return cls(
            state.role,
            state.term,
            state.voted_for,
            state.leader,
            state.committed,
            state.proven,
            replica.handler.orphans,
            state.membership.index,
            tuple((peer, d.proven) for peer, d in replica.dispatchers.items()),
            replica.handover.transfer is not None,
        )

    @property
    def told(self) -> Seen:
        """What has to be told of: votes, commits and the beginning of a transfer have not."""
        return self._replace(voted_for=None, committed=0, transfers=False)


def done_by(step: int, copy: Replica, now: float) -> list[object]:
    """What a step of this copy does, due or not."""
    before = Seen.of(copy)
    copy.outbox.take()
    found: list[object] = []
    if step == TICK:
        copy.tick(now)
    elif step == INSTALL:
        found += copy.receiver.take_pieces()
        found += copy.receiver.take_answers()
    elif step == CONFIRM:
        copy.confirm_reads(now)
    elif step == REPLICATE:
        copy.replicate(now)
    elif step == ASK:
        copy.ask(now)
    elif step == TELL:
        for outcomes in copy.take_outcomes():
            found += outcomes
    writes, record = copy.take_writes()
    if step != WRITE:
        found += copy.outbox.take()
    found += [*writes, *([] if record is None else [record])]
    after = Seen.of(copy)
    return found if after == before else [*found, after]


@pytest.mark.hypothesis
def test_no_step_that_is_not_due_would_do_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    # A configuration never changes, and what is around a core is not of interest.
    for kept in (Configuration, ScenarioMember):
        monkeypatch.setattr(kept, "__deepcopy__", lambda self, memo: self, raising=False)
    left_out: Counter[int] = Counter()
    told: WeakKeyDictionary[Replica, Seen] = WeakKeyDictionary()
    copies: WeakSet[Replica] = WeakSet()
    looked_at = cycle((TICK, INSTALL, WRITE, CONFIRM, REPLICATE, ASK, TELL))

    def checked(name: str) -> Callable[..., object]:
        method = getattr(Replica, name)

        def call(self: Replica, *arguments: Any) -> object:
            if self in copies:
                return method(self, *arguments)
            agenda, now = self.agenda, arguments[-1]
            if name == "tick":
                agenda.due &= ~TICK
            found = method(self, *arguments)
            due = agenda.due | agenda.later
            if now >= self.patience.due(agenda.wakes_at):
                due |= TICK | REPLICATE | ASK | PLAN
                agenda.due |= REPLICATE | ASK
                agenda.wakes_at = self.earliest_deadline()
            elif not due & (TICK | CONFIRM | REPLICATE | ASK):
                assert agenda.wakes_at <= self.earliest_deadline(), (name, arguments)
            step = next(looked_at)  # each in its turn: a copy takes a millisecond
            if not due & (WRITE | step):
                left_out[step] += 1
                copies.add(copy := deepcopy(self))
                assert done_by(step, copy, now) == [], (name, step, arguments)
            seen = Seen.of(self).told
            if not due & TELL:
                assert seen == told.get(self, seen), (name, arguments)
            told[self] = seen
            reads = self.member_reads
            if not (self.state.decided or reads._ready or reads._lost):
                agenda.due &= ~TELL
            return found

        return call

    for name in ("receive", "persisted", "reachable", "unreachable", "tick"):
        monkeypatch.setattr(Replica, name, checked(name))
    run_state_machine_as_test(GroupMachine, settings=settings(CHOICE, max_examples=examples(8)))
    assert len(left_out) == 7
    assert min(left_out.values()) > 100, left_out


def test_a_leader_at_rest_has_nothing_ready_until_its_heartbeat_is_due() -> None:
    group = rested(at_rest())
    leader = group["n0"].replica
    due = leader.leadership.heartbeat_at
    assert not is_due(leader, due - 0.001)
    assert is_due(leader, due)
    leader.tick(due)
    said = group["n0"].leaving(due)
    assert {type(message) for _, message in said} == {Heartbeat}
    assert [peer for peer, _ in said] == ["n1", "n2"]


def test_a_follower_has_its_answer_to_a_heartbeat_ready_and_nothing_else() -> None:
    group = rested(at_rest())
    follower = group["n1"].replica
    follower.receive("n0", Heartbeat(1, 3, 99), group.now)
    assert is_due(follower, group.now)
    assert group["n1"].leaving(group.now) == [("n0", HeartbeatResponse(1, 99))]
    assert not is_due(follower, group.now)


def test_the_answer_to_a_heartbeat_leaves_a_leader_nothing_to_do() -> None:
    group = rested(at_rest())
    leader = group["n0"].replica
    leader.receive("n1", HeartbeatResponse(1, 1), group.now)
    assert not is_due(leader, group.now)
    assert leader.dispatchers["n1"].last_answer_at == group.now


def test_an_answer_for_which_a_peer_is_probed_at_once_leaves_a_leader_something_to_do() -> None:
    group = rested(at_rest())
    leader = group["n0"].replica
    leader.unreachable("n1", group.now)
    group.now += 2 * LEAST_WAIT_S
    group["n0"].leaving(group.now)  # a probe, which is lost
    assert leader.dispatchers["n1"].next_deadline(3) > group.now
    leader.receive("n1", HeartbeatResponse(1, 1), group.now)
    assert is_due(leader, group.now)
    assert leader.dispatchers["n1"].next_deadline(3) <= group.now


def test_an_answer_that_proves_a_peer_is_more_than_a_routine_one() -> None:
    group = rested(at_rest())
    leader = group["n0"].replica
    leader.dispatchers["n1"].proven = False
    leader.receive("n1", HeartbeatResponse(1, 0), group.now)
    assert not leader.agenda.due & TELL
    leader.receive("n1", HeartbeatResponse(1, 1), group.now)
    assert leader.agenda.due & TELL
    assert leader.dispatchers["n1"].proven
    leader.agenda.due &= ~TELL
    leader.receive("n1", HeartbeatResponse(1, 1), group.now)
    assert not leader.agenda.due & TELL


def late_acknowledgement() -> tuple[Group, PushResponse]:
    """n0 has committed an entry with n1 and told its application; what n2 says of it comes now."""
    group = rested(at_rest())
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


def test_an_acknowledgement_of_what_is_committed_leaves_a_leader_nothing_to_do() -> None:
    group, late = late_acknowledgement()
    leader = group["n0"].replica
    leader.receive("n2", late, group.now)
    assert leader.dispatchers["n2"].match_index == 4
    assert not is_due(leader, group.now)


def test_an_acknowledgement_that_commits_leaves_a_leader_only_to_apply() -> None:
    group, late = late_acknowledgement()
    leader = group["n0"].replica
    group.propose("n0", 1)
    group["n0"].leaving(group.now)
    group["n0"].sync(group.now)
    late = late._replace(index=5, match=5, verified=5, last_index=5)
    leader.receive("n2", late, group.now)
    assert (group["n0"].committed, leader.appliable) == (5, 5)
    assert not is_due(leader, group.now)


def test_a_leaders_own_sync_leaves_it_nothing_to_do() -> None:
    group = rested(at_rest())
    group.propose("n0", 1)
    group["n0"].leaving(group.now)
    leader = group["n0"].replica
    leader.persisted(4, leader.handler.epoch, None, group.now)
    assert (leader.state.durable, group["n0"].committed) == (4, 3)
    assert not is_due(leader, group.now)


def test_a_followers_sync_has_its_acknowledgement_ready() -> None:
    group = rested(at_rest())
    group.propose("n0", 1)
    pushes = dict(group["n0"].leaving(group.now))
    follower = group["n1"].replica
    follower.receive("n0", pushes["n1"], group.now)
    assert group["n1"].leaving(group.now) == []
    follower.persisted(4, follower.handler.epoch, None, group.now)
    assert is_due(follower, group.now)
    ((_, answer),) = group["n1"].leaving(group.now)
    assert isinstance(answer, PushResponse)
    assert answer.match == 4


def test_a_leader_has_to_look_for_its_quorum_once_its_group_has_changed() -> None:
    group = Group([[]])
    group.elect("n0")
    group.join("n1")
    leader = group["n0"].replica
    leader.propose_change([AddLearner("n1", "n1:1")])
    group.pass_time(TIMEOUT_S)
    group.silent = {"n1"}
    group.pass_time(2.5 * TIMEOUT_S)
    leader.propose_change([AddVoter("n1", "n1:1")])
    group["n0"].leaving(group.now)
    group["n0"].sync(group.now)
    assert leader.state.membership.voting_members == {"n0", "n1"}
    group["n0"].leaving(group.now)  # the turn in which a sync ends has ticked before it
    assert is_due(leader, group.now)
    leader.tick(group.now)
    assert leader.state.role is Role.FOLLOWER


def propose(group: Group) -> None:
    group.propose("n0", 1)


def ask_for_a_read(group: Group) -> None:
    group["n0"].replica.request_read(1)


def hand_over(group: Group) -> None:
    group["n0"].replica.transfer_leadership("n1", group.now)


def change_the_group(group: Group) -> None:
    group["n0"].replica.propose_change([Remove("n1")])


def come_back(group: Group) -> None:
    group["n0"].replica.reachable("n1", group.now)


def hear_of_another_term(group: Group) -> None:
    group["n0"].replica.receive("n1", HeartbeatResponse(99, 0), group.now)


def lose_the_log_of_a_peer(group: Group) -> None:
    refusal = PushResponse(1, Phase.COMMIT, False, 3, hint_index=1, hint_term=1)
    group["n0"].replica.receive("n1", refusal, group.now)


def hear_no_quorum(group: Group) -> None:
    group.now += TIMEOUT_S


@pytest.mark.parametrize(
    "happens",
    [
        *(propose, ask_for_a_read, hand_over, change_the_group, come_back),
        *(hear_of_another_term, lose_the_log_of_a_peer, hear_no_quorum),
    ],
)
def test_a_leader_with_anything_to_do_says_so(happens: Callable[[Group], None]) -> None:
    group = rested(at_rest())
    happens(group)
    assert is_due(group["n0"].replica, group.now)


def test_a_member_that_lost_its_leader_says_so_once() -> None:
    group = rested(at_rest())
    member = group["n1"].replica
    member.forget_leader()
    assert is_due(member, group.now)
    group["n1"].leaving(group.now)
    assert not is_due(member, group.now)
    assert member.state.role is Role.FOLLOWER


@pytest.mark.parametrize("now", [0.0, 0.05, 0.0999999, 0.1, 7.3, 1e6 + 1 / 3])
def test_aligned_heartbeats_meet_at_multiples_of_the_interval(now: float) -> None:
    config = at_rest()["n0"].replica.config._replace(aligned_heartbeats=True)
    due = config.next_heartbeat_at(now)
    interval_s = config.heartbeat_interval_s
    assert LEAST_HEARTBEAT_GAP * interval_s <= due - now <= (1 + LEAST_HEARTBEAT_GAP) * interval_s
    assert abs(due / interval_s - round(due / interval_s)) < 1e-6
    assert config.next_heartbeat_at(due) - due > interval_s / 2
    assert config._replace(aligned_heartbeats=False).next_heartbeat_at(now) == now + interval_s
