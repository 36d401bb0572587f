"""Messages that no correct member sends are refused by name, and change nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.core.hard_state import HardState
from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.member_state import Role
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Inquiry,
    InquiryAnswer,
    InstallOutcome,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Phase,
    PushRequest,
    PushResponse,
    ReadRequest,
    ReadResponse,
    Recall,
    Recollection,
    Reminder,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.outbox import MAX_WAITING_MESSAGES
from dledger.core.replica import MAX_TERMS_AHEAD
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.entry import NO_TERM
from dledger.errors import PeerFault
from tests.dledger.core.core_group import Group, Member
from tests.examples import examples

THREE = ["n0", "n1", "n2"]


def led() -> Group:
    """n0 leads term 1, and everybody has entries 0 to 3."""
    group = Group([[], [], []])
    group.elect("n0")
    group.propose("n0", 3)
    group.pass_time(0.3)
    assert group["n0"].committed == 3
    return group


def test_an_acknowledgement_beyond_the_log_leaves_the_leader_in_office() -> None:
    group = led()
    leader = group["n0"].replica
    with pytest.raises(PeerFault, match="refused a message of n1: it acknowledges entry 99"):
        leader.receive("n1", PushResponse(1, Phase.COMMIT, True, 99, 99, 99, 99), group.now)
    assert leader.dispatchers["n1"].match_index == 3
    group.propose("n0", 1)
    group.pass_time(0.3)
    assert group["n0"].committed == 4


def test_an_empty_log_does_not_agree_with_an_entry_of_unknown_term() -> None:
    member = Member("n1", THREE)
    heartbeat = Heartbeat(5, -1, 1)
    member.replica.receive("n0", heartbeat, 0.0)
    push = PushRequest(
        5, Phase.COMMIT, prev_index=40, prev_term=NO_TERM, last_index=40, committed=40
    )
    member.replica.receive("n0", push, 0.0)
    assert (member.committed, member.replica.handler.verified) == (-1, -1)


def test_an_empty_log_does_not_agree_with_a_snapshot_behind_an_entry_of_unknown_term() -> None:
    member = Member("n1", THREE)
    member.replica.receive("n0", Heartbeat(5, -1, 1), 0.0)
    offer = SnapshotOffer(50, 3, 0, 10, LogBegin(40, NO_TERM, 0, 4096))
    member.replica.receive("n0", InstallSnapshot(5, offer, 0, 0), 0.0)
    assert member.committed == -1
    assert member.replica.receiver.take_pieces()  # it wants the snapshot


def test_a_log_with_an_unknown_beginning_agrees_where_it_begins() -> None:
    view = LedgerView([TermRun(2, 41)], last_index=45, before_begin=40, before_begin_term=NO_TERM)
    assert view.term_at(40) == NO_TERM
    member = Member("n1", THREE, hard_state=HardState(2), view=view)
    member.replica.receive("n0", Heartbeat(5, -1, 1), 0.0)
    push = PushRequest(
        5, Phase.COMPARE, prev_index=40, prev_term=NO_TERM, last_index=40, committed=40
    )
    member.replica.receive("n0", push, 0.0)
    assert member.committed == 40


def test_a_term_that_no_member_can_be_in_is_refused() -> None:
    group = led()
    for message in (Heartbeat(2**62, 3, 1), VoteRequest(MAX_TERMS_AHEAD + 9, 3, 1, pre=False)):
        with pytest.raises(PeerFault, match="n2: it is in term"):
            group["n1"].replica.receive("n2", message, group.now)
    assert group["n1"].term == 1


def test_answers_that_wait_for_a_disk_that_hangs_replace_one_another() -> None:
    member = Member("n1", THREE)
    for number in range(5 * MAX_WAITING_MESSAGES):
        member.replica.receive("n0", Heartbeat(5, -1, number), 0.0)
        member.replica.receive(f"stranger-{number}", VoteRequest(5, -1, 0, pre=False), 0.0)
    assert member.leaving(0.0) == []
    member.sync(0.0)
    answers = member.leaving(0.0)
    assert len(answers) <= MAX_WAITING_MESSAGES
    beats = [m for _, m in answers if isinstance(m, HeartbeatResponse)]
    assert beats == [HeartbeatResponse(5, 5 * MAX_WAITING_MESSAGES - 1)]


# --- anything that a decoder lets pass ------------------------------------------------------------

INDEX = st.integers(-1, 9) | st.sampled_from([2**40, 2**63 - 1])
TERM = st.integers(0, 4) | st.sampled_from([2**40, 2**63 - 1])
# A push's runs come from entries that the node has checked: they are of its term at most, in order.
FLAG = st.booleans()
OFFER = st.builds(
    SnapshotOffer, INDEX, TERM, INDEX, INDEX, st.builds(LogBegin, INDEX, TERM, INDEX, INDEX)
)


@st.composite
def pushes(draw: st.DrawFn) -> PushRequest:
    """A push as it leaves the check of a node: its entries are in order, behind its base."""
    term, prev = draw(st.integers(0, 4)), draw(st.integers(-1, 6))
    phase = draw(st.sampled_from([Phase.COMPARE, Phase.TRUNCATE, Phase.APPEND, Phase.COMMIT]))
    prev_term = draw(st.integers(-1, 4))
    count = draw(st.integers(0, 3)) if phase is Phase.APPEND else 0
    runs: list[TermRun] = []
    last = max(prev_term, 0)
    for index in range(prev + 1, prev + 1 + count):
        last = draw(st.integers(last, max(term, last)))
        if not runs or runs[-1].term != last:
            runs.append(TermRun(last, index))
    next_term = draw(st.integers(-1, 4))
    return PushRequest(
        term, phase, prev, prev_term, prev + count, draw(INDEX), next_term, tuple(runs)
    )


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    pushes(),
    st.builds(VoteRequest, TERM, INDEX, TERM, FLAG, FLAG),
    st.builds(VoteResponse, TERM, FLAG, FLAG, INDEX, st.integers(-1, 4)),
    st.builds(
        PushResponse, TERM, st.sampled_from(Phase), FLAG, *[INDEX] * 5, st.integers(-1, 4), FLAG
    ),
    st.builds(Heartbeat, TERM, INDEX, INDEX),
    st.builds(HeartbeatResponse, TERM, INDEX, st.integers(0, 10**6)),
    st.builds(TimeoutNow, TERM),
    st.builds(ReadRequest, TERM, INDEX),
    st.builds(ReadResponse, TERM, INDEX, INDEX),
    st.builds(InstallSnapshot, TERM, OFFER, INDEX, INDEX),
    st.builds(InstallSnapshotResponse, TERM, st.sampled_from(InstallOutcome), *[INDEX] * 4),
    st.builds(Inquiry, TERM, INDEX),
    st.builds(InquiryAnswer, TERM, INDEX, INDEX, FLAG, FLAG, FLAG, st.integers(0, 9)),
    st.builds(Reminder, TERM, INDEX),
    st.builds(Recall, TERM, INDEX),
    st.builds(Recollection, TERM, INDEX, TERM, FLAG, INDEX),
)


@settings(max_examples=examples(300), deadline=None)
@given(
    leads=st.booleans(),
    said=st.lists(st.tuples(st.sampled_from(["n1", "n2", "n9"]), MESSAGES), max_size=8),
)
def test_whatever_peers_say_a_member_refuses_it_by_name_or_goes_on(
    leads: bool, said: list[tuple[str, Message]]
) -> None:
    group = led()
    member = group["n0"]
    if not leads:
        group.now += 5.0
        member.replica.tick(group.now)
        assert member.role is not Role.LEADER
    committed = member.committed
    for sender, message in said:
        group.now += 0.01
        refused = None
        try:
            member.replica.receive(sender, message, group.now)
        except PeerFault as fault:
            refused = fault.peer
        assert refused in (None, sender)
        member.sync(group.now)
        member.replica.tick(group.now)
        member.leaving(group.now)
        assert committed <= member.committed <= member.replica.view.last_index
        committed = member.committed
        assert member.replica.next_deadline() > 0
