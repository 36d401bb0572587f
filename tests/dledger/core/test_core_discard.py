"""The protocol over logs whose beginning is gone: nobody is asked about what nobody has."""

from __future__ import annotations

from dledger.core.agenda import Agenda
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.core.messages import Heartbeat, Phase, PushRequest, PushResponse
from dledger.core.round_trip import LEAST_WAIT_S
from tests.dledger.core.core_group import EntriesAtOnce, Group, Member, view_of

TWO = ["n0", "n1"]


def follower(terms: list[int], first_index: int) -> Member:
    """n0, which follows n1 in term 5; all of its log is committed and durable."""
    member = Member("n0", TWO, terms, HardState(5, None, len(terms) - 1))
    member.replica.view.discard_before(first_index)
    member.replica.receive("n1", Heartbeat(5, len(terms) - 1, 1), 0.0)
    member.leaving(0.0)
    return member


def test_a_late_push_of_discarded_entries_contradicts_nothing() -> None:
    member = follower([1, 1, 2, 2, 3, 3], first_index=4)
    late = PushRequest(5, Phase.APPEND, 0, 1, 6, 2, runs=(TermRun(1, 1), TermRun(2, 2),
                       TermRun(3, 4), TermRun(5, 6)))  # fmt: skip
    member.replica.receive("n1", late, 0.0)
    member.sync(0.0)
    [(_, answer)] = member.leaving(0.0)
    assert isinstance(answer, PushResponse)
    assert (answer.ok, answer.match) == (True, 6)
    assert [member.replica.view.term_at(i) for i in range(3, 7)] == [2, 3, 3, 5]


def test_a_late_truncation_inside_what_was_discarded_drops_nothing() -> None:
    member = follower([1, 1, 2, 2, 3, 3], first_index=4)
    late = PushRequest(5, Phase.TRUNCATE, 1, 1, 1, -1, next_term=2, runs=())
    member.replica.receive("n1", late, 0.0)
    assert member.replica.handler.writes == []
    assert member.replica.view.last_index == 5


def test_a_leader_sends_nothing_from_before_its_logs_beginning() -> None:
    view = view_of([1] * 20 + [2] * 20)
    dispatcher = EntryDispatcher("n1", 2, view, EntriesAtOnce(1), 0.0, Agenda())
    dispatcher.next_index = 5
    [probe] = dispatcher.pump(30, 0.0)
    assert (probe.prev_index, probe.prev_term) == (4, 1)
    view.discard_before(25)
    [probe] = dispatcher.pump(30, LEAST_WAIT_S)
    assert (probe.prev_index, probe.prev_term) == (24, 2)


def test_a_window_that_was_open_over_what_was_discarded_goes_on_behind_it() -> None:
    view = view_of([1] * 100)
    dispatcher = EntryDispatcher("n1", 1, view, EntriesAtOnce(1), 0.0, Agenda())
    dispatcher.next_index = 1
    dispatcher.pump(-1, 0.0)
    dispatcher.receive(PushResponse(1, Phase.COMPARE, True, 0, 0, 0, 0), 0.0)
    dispatcher.pump(-1, 0.0)
    assert dispatcher.next_index < 50
    view.discard_before(50)
    dispatcher.receive(PushResponse(1, Phase.APPEND, True, 3, 3, 3, 3), 0.0)
    pushes = dispatcher.pump(-1, 0.0)
    assert pushes
    assert all(push.prev_index >= 49 for push in pushes)
    assert all(push.prev_term == 1 for push in pushes)


def test_a_member_behind_the_beginning_is_asked_again_and_again_and_breaks_nothing() -> None:
    group = Group([[1] * 30, [1] * 30, [1] * 3])
    group.silent = {"n2"}
    leader = group.elect("n0")
    leader.replica.view.discard_before(20)
    group.silent.clear()
    group.pass_time(2.0)
    assert group["n1"].committed >= 30
    assert group["n2"].replica.view.last_index == 2
    assert group["n2"].committed <= 2
    assert leader.replica.dispatchers["n2"].next_index == 20


def test_members_with_different_beginnings_elect_and_replicate() -> None:
    group = Group([[1] * 30, [1] * 30, [1] * 30])
    group.elect("n0")
    group.propose("n0", 5)
    group.pass_time(1.0)
    for name, first in (("n0", 31), ("n1", 12)):
        group[name].replica.view.discard_before(first)
    group.elect("n1")
    group.propose("n1", 5)
    group.pass_time(1.0)
    ends = {member.replica.view.last_index for member in group.members.values()}
    assert len(ends) == 1
    assert group["n0"].committed == group["n2"].committed == ends.pop()
