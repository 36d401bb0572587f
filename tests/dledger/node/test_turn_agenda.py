"""A turn visits the steps that are marked, in their order, and nothing else."""

from __future__ import annotations

import sys
from types import FrameType

from dledger.core.agenda import APPLY, PLAN, SEND, TICK, WRITE, Agenda
from dledger.core.messages import Heartbeat, Phase, PushRequest
from dledger.node.turn import Turn
from tests.dledger.core.core_group import HEARTBEAT_S
from tests.dledger.node.stored_member import StoredMember, led_alone

# Steps that no part of the product has.
FIRST, SECOND = 1 << 20, 1 << 21


def calls_of_a_turn(turn: Turn, now: float) -> list[str]:
    """The Python functions that a turn calls, in their order."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        turn.turn(now)
    finally:
        sys.setprofile(None)
    return calls


def test_quiet_parts_cost_a_turn_nothing_however_many_there_are() -> None:
    calls: list[list[str]] = []
    for parts in (0, 50):
        member = led_alone()
        turn, visited = member.member.turn, list[float]()
        for number in range(parts):
            turn._steps[FIRST << number] = visited.append
        turn.submit([b"body"], 4, member.outcomes.append)
        calls.append(calls_of_a_turn(turn, 30.0 + HEARTBEAT_S / 2))
        assert visited == []
    assert "Turn.propose" in calls[0]
    assert calls[0] == calls[1]


def test_marked_parts_are_visited_in_the_order_of_their_steps() -> None:
    turn = led_alone().member.turn
    visited: list[int] = []
    turn._steps[FIRST] = lambda now: visited.append(FIRST)
    turn._steps[SECOND] = lambda now: visited.append(SECOND)
    turn.agenda.due |= SECOND
    turn.agenda.due |= FIRST
    turn.turn(31.0)
    assert visited == [FIRST, SECOND]
    turn.turn(31.0)
    assert visited == [FIRST, SECOND]


def test_an_earlier_step_that_a_part_marks_comes_before_the_later_ones() -> None:
    turn = led_alone().member.turn
    visited: list[int] = []

    def first(now: float) -> None:
        visited.append(FIRST)

    def second(now: float) -> None:
        visited.append(SECOND)
        if len(visited) == 1:
            turn.agenda.due |= FIRST | SECOND

    turn._steps |= {FIRST: first, SECOND: second}
    turn.agenda.due |= SECOND
    turn.turn(31.0)
    assert visited == [SECOND, FIRST, SECOND]


def test_a_step_for_later_is_visited_in_the_next_turn() -> None:
    turn = led_alone().member.turn
    visited: list[float] = []

    def again(now: float) -> None:
        visited.append(now)
        turn.agenda.later |= FIRST

    turn._steps[FIRST] = again
    turn.agenda.due |= FIRST
    for now in (31.0, 31.01, 31.02):
        turn.turn(now)
    assert visited == [31.0, 31.01, 31.02]


def test_the_earliest_deadline_of_all_parts_is_kept() -> None:
    agenda = Agenda()
    for at, kept in ((5.0, 5.0), (7.0, 5.0), (3.0, 3.0)):
        agenda.wake_by(at)
        assert agenda.wakes_at == kept


def test_a_deadline_that_was_put_off_costs_no_step_when_its_time_comes() -> None:
    member = led_alone()
    turn, replica = member.member.turn, member.replica
    now = 31.0
    turn.turn(now)
    turn.agenda.wakes_at = replica.patience.at(now)  # as a part had said that put it off since
    calls: list[str] = []
    turn._steps[TICK] = lambda now: calls.append("tick")
    assert turn.alarm(now) > now
    assert calls == []
    assert turn.agenda.wakes_at > replica.patience.at(now)


def follower() -> StoredMember:
    """A member with nothing to do, which follows n0 in term 1."""
    member = StoredMember("n1", ["n0", "n1", "n2"])
    member.receive("n0", Heartbeat(1, -1, 0), 0.0)
    member.sync(0.0)
    member.replica.agenda.due = 0
    return member


def test_a_push_that_is_taken_is_to_be_written() -> None:
    replica = follower().replica
    replica.view.extend(1, 1)
    replica.receive("n0", PushRequest(1, Phase.TRUNCATE, -1, -1, -1, -1, 2), 0.0)
    assert replica.agenda.due & WRITE


def test_an_entry_that_becomes_committed_is_to_be_applied() -> None:
    replica = follower().replica
    replica.view.extend(1, 1)
    replica.state.durable = replica.handler.verified = 0
    replica.receive("n0", Heartbeat(1, 0, 0), 0.0)
    assert replica.agenda.due == APPLY | SEND


def test_an_entry_that_becomes_durable_is_to_be_applied_if_it_is_committed() -> None:
    replica = follower().replica
    replica.view.extend(1, 1)
    replica.handler.verified = 0
    replica.receive("n0", Heartbeat(1, 0, 0), 0.0)
    assert not replica.agenda.due & APPLY
    replica.persisted(0, replica.handler.epoch, None, 0.0)
    assert replica.agenda.due & APPLY


def test_a_member_that_starts_looks_at_everything_once() -> None:
    turn = StoredMember("n0", ["n0", "n1"]).member.turn
    assert set(turn._steps) == {1 << place for place in range(PLAN.bit_length())}
    assert all(turn.agenda.due & step for step in turn._steps)
