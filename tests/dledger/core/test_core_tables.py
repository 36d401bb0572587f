from itertools import product

import pytest

from dledger.core.agenda import Agenda
from dledger.core.entry_dispatcher import PHASE_CHANGES, EntryDispatcher, PhaseEvent
from dledger.core.hard_state import HardState
from dledger.core.member_state import ROLE_CHANGES, MemberState, Role, RoleEvent
from dledger.core.membership.membership import Membership
from dledger.core.messages import Phase
from dledger.errors import InvariantBroken
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import EntriesAtOnce, view_of

ROLES_AND_EVENTS = list(product(Role, RoleEvent))
PHASES_AND_EVENTS = list(product(Phase, PhaseEvent))


def member_in(role: Role) -> MemberState:
    state = MemberState("a", Membership(configuration("ab")), HardState(3, "a"), durable=5)
    state.role = role
    return state


def dispatcher_in(phase: Phase) -> EntryDispatcher:
    dispatcher = EntryDispatcher("b", 1, view_of([1, 1]), EntriesAtOnce(1), 0.0, Agenda())
    dispatcher.phase = phase
    return dispatcher


@pytest.mark.parametrize(("role", "event"), ROLES_AND_EVENTS)
def test_a_role_changes_as_the_table_says_and_not_otherwise(role: Role, event: RoleEvent) -> None:
    state = member_in(role)
    if (role, event) in ROLE_CHANGES:
        state.change(event)
        assert state.role is ROLE_CHANGES[role, event]
    else:
        with pytest.raises(InvariantBroken, match="not a transition"):
            state.change(event)
        assert state.role is role


def test_nobody_becomes_leader_but_by_winning_an_election() -> None:
    ways = [pair for pair, role in ROLE_CHANGES.items() if role is Role.LEADER]
    assert ways == [(Role.CANDIDATE, RoleEvent.VOTES_WON)]


def test_a_higher_term_makes_anybody_a_follower() -> None:
    assert all(ROLE_CHANGES[role, RoleEvent.HIGHER_TERM] is Role.FOLLOWER for role in Role)


@pytest.mark.parametrize(("phase", "event"), PHASES_AND_EVENTS)
def test_a_phase_changes_as_the_table_says_and_not_otherwise(
    phase: Phase, event: PhaseEvent
) -> None:
    dispatcher = dispatcher_in(phase)
    if (phase, event) in PHASE_CHANGES:
        dispatcher._change(event)
        assert dispatcher.phase is PHASE_CHANGES[phase, event]
    else:
        with pytest.raises(InvariantBroken, match="not a transition"):
            dispatcher._change(event)
        assert dispatcher.phase is phase


@pytest.mark.parametrize("phase", Phase)
def test_a_broken_connection_is_survived_in_every_phase(phase: Phase) -> None:
    dispatcher = dispatcher_in(phase)
    dispatcher.lost(1.0)
    assert dispatcher.phase is Phase.COMPARE
    dispatcher.reachable(2.0)
    assert [push.phase for push in dispatcher.pump(0, 2.0)] == [Phase.COMPARE]


def test_a_second_vote_in_a_term_is_a_broken_invariant() -> None:
    state = member_in(Role.FOLLOWER)
    state.vote("a")
    with pytest.raises(InvariantBroken, match="second vote"):
        state.vote("b")


@pytest.mark.parametrize("term", [2, 3])
def test_a_term_is_only_ever_followed_by_a_higher_one(term: int) -> None:
    with pytest.raises(InvariantBroken, match="after term 3"):
        member_in(Role.FOLLOWER).enter_term(term, None)


def test_nothing_is_applied_that_is_not_both_committed_and_durable() -> None:
    state = member_in(Role.FOLLOWER)
    state.commit(9)
    state.apply(5)
    with pytest.raises(InvariantBroken, match="applied 6"):
        state.apply(6)
    state.durable = 9
    state.apply(9)
    with pytest.raises(InvariantBroken, match="applied 8"):
        state.apply(8)


def test_a_commit_index_never_goes_back() -> None:
    state = member_in(Role.FOLLOWER)
    assert state.commit(4)
    assert not state.commit(3)
    assert state.committed == 4


def test_a_recorded_commit_index_beyond_the_log_is_cut_to_it() -> None:
    membership = Membership(configuration("a"))
    assert MemberState("a", membership, HardState(1, None, committed=9), durable=5).committed == 5
