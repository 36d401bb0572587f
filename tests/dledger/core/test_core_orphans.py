"""A member keeps committed entries that its group lost: nothing a leader sends overwrites them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.core.agenda import WRITE
from dledger.core.entry_handler import Restart, Truncation
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.core.member_state import Role
from dledger.core.messages import (
    Heartbeat,
    InstallOutcome,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Phase,
    PushRequest,
    PushResponse,
)
from dledger.core.orphans import Orphans
from dledger.core.replica import Replica
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.errors import PeerFault
from tests.dledger.core.core_group import Group, Member, view_of

KEPT = [1, 1, 2, 2, 2, 2, 2]
COMMITTED = 5  # the last entry is not known to be
LOST = Orphans(2, COMMITTED)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[PeerFault]:
    """Takes note of the faults of messages, as a node does, and goes on."""
    found: list[PeerFault] = []
    receive = Replica.receive

    def taking_note(self: Replica, sender: str, message: Message, now: float) -> None:
        try:
            receive(self, sender, message, now)
        except PeerFault as fault:
            found.append(fault)

    monkeypatch.setattr(Replica, "receive", taking_note)
    return found


def restored_majority(newer: int) -> Group:
    """n0 and n2 came back with older folders; n0 leads, and n1, which has more, comes last."""
    group = Group([[1, 1], [], [1, 1]])
    group.silent.add("n1")
    for name in ("n0", "n2"):  # in a later term than that of the lost entries
        group.members[name] = Member(name, group.names, [1, 1], HardState(4))
    group.elect("n0")
    if newer:
        group.propose("n0", newer)
    group.run()
    group.members["n1"] = Member(
        "n1", group.names, KEPT, HardState(2, None, COMMITTED), now=group.now
    )
    group.silent.clear()
    return group


@pytest.mark.parametrize("newer", [0, 1, 2, 3, 10])
def test_what_the_group_lost_is_found_and_kept(newer: int, faults: list[PeerFault]) -> None:
    """The leader's log ends before, at and behind what n1 knows to be committed."""
    group = restored_majority(newer)
    group.pass_time(2.0)
    member = group["n1"]
    assert member.replica.handler.orphans == LOST
    assert member.log == KEPT
    assert not [write for write in member.written if isinstance(write, Truncation | Restart)]
    assert group["n0"].role is Role.LEADER
    assert group["n0"].replica.dispatchers["n1"].match_index <= 1
    assert group["n0"].committed == group["n0"].replica.view.last_index  # the others go on
    assert faults


def test_a_leader_counts_nothing_of_a_member_that_holds_what_the_group_lost(
    faults: list[PeerFault],
) -> None:
    group = restored_majority(10)
    group.pass_time(1.0)
    group.silent.add("n2")
    committed = group["n0"].committed
    group.propose("n0", 1)
    group.run()
    assert group["n0"].committed == committed


def follower(orphans: Orphans | None = None, committed: int = COMMITTED) -> Member:
    """n1 follows n0 in term 5."""
    member = Member("n1", ["n0", "n1", "n2"])
    hard_state = HardState(2, None, committed)
    config = member.replica.config
    batches = member.replica.followers._batches
    member.begin(
        Replica(config, view_of(KEPT), hard_state, batches, lambda: 0.5, 0.0, orphans=orphans),
        {},
    )
    member.replica.receive("n0", Heartbeat(5, -1, 1), 0.0)
    return member


def push(phase: Phase, prev: int, terms: list[int], prev_term: int) -> PushRequest:
    runs = tuple(TermRun(term, prev + 1 + n) for n, term in enumerate(terms))
    next_term = 5 if phase is Phase.TRUNCATE else -1
    return PushRequest(5, phase, prev, prev_term, prev + len(terms), 99, next_term, runs)


def answers(member: Member) -> list[Message]:
    member.sync(0.0)
    return [message for _, message in member.leaving(0.0)]


OFFER = SnapshotOffer(40, 5, 0, 10, LogBegin(30, 5, 0, 4096))
CONTRADICTING = SnapshotOffer(4, 5, 0, 10, LogBegin(3, 5, 0, 4096))


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (push(Phase.COMPARE, 4, [], 5), Orphans(4, 5)),
        (push(Phase.COMMIT, 4, [], 5), Orphans(4, 5)),
        (push(Phase.APPEND, 4, [5], 5), Orphans(4, 5)),
        (push(Phase.APPEND, 1, [5], 1), LOST),
        (push(Phase.TRUNCATE, 1, [], 1), LOST),
        (InstallSnapshot(5, CONTRADICTING, 0, 0), Orphans(3, 5)),
    ],
)
def test_every_message_that_shows_the_loss_is_noticed(
    message: Message, found: Orphans, faults: list[PeerFault]
) -> None:
    member = follower()
    member.replica.receive("n0", message, 0.0)
    assert member.replica.handler.orphans == found
    assert member.replica.agenda.due & WRITE  # the record of it is due
    for answer in answers(member):
        if isinstance(answer, PushResponse):
            assert answer.ok is (getattr(message, "phase", None) is Phase.TRUNCATE)
            assert answer.match <= found.first - 1
    assert member.log == KEPT


@pytest.mark.parametrize(
    ("index", "committed", "found"), [(4, 5, LOST), (6, 5, LOST), (6, 1, None)]
)
def test_another_entry_of_the_same_term_shows_a_loss_from_where_that_term_begins(
    index: int, committed: int, found: Orphans | None
) -> None:
    """Two leaders of one term begin it with a no-op each."""
    member = follower(committed=committed)
    told = push(Phase.APPEND, index, [2], 2)._replace(contradicts=index)
    member.replica.receive("n0", told, 0.0)
    assert member.replica.handler.orphans == found
    assert not [answer for answer in answers(member) if isinstance(answer, PushResponse)]


@pytest.mark.parametrize("known", [None, LOST])
def test_a_snapshot_replaces_no_entries_that_the_group_lost(known: Orphans | None) -> None:
    member = follower(known)
    member.replica.receive("n0", InstallSnapshot(5, OFFER, 0, 0), 0.0)
    wanted = member.replica.receiver.take_pieces()
    assert bool(wanted) is (known is None)
    assert member.replica.receiver.install(InstallSnapshot(5, OFFER, 0, 0)) is (known is None)
    outcomes = {one.outcome for one in answers(member) if isinstance(one, InstallSnapshotResponse)}
    assert outcomes == ({InstallOutcome.AGREES} if known is None else {InstallOutcome.REFUSED})


def _compared(member: Member) -> None:
    member.replica.receive("n0", push(Phase.COMPARE, COMMITTED, [], 2), 0.0)


def _appended(member: Member) -> None:
    member.replica.receive("n0", push(Phase.APPEND, 3, [2, 2, 5], 2), 0.0)


@pytest.mark.parametrize("arrives", [_compared, _appended])
def test_a_leader_that_has_the_last_of_them_gives_the_group_all_back(
    arrives: Callable[[Member], None],
) -> None:
    member = follower(LOST)
    arrives(member)
    assert member.replica.handler.orphans is None


def test_part_of_them_at_the_leader_is_acknowledged_and_changes_nothing() -> None:
    member = follower(LOST)
    member.replica.receive("n0", push(Phase.APPEND, 1, [2], 1), 0.0)
    (answer,) = [one for one in answers(member) if isinstance(one, PushResponse)]
    assert (answer.ok, answer.match) == (True, 2)
    assert member.replica.handler.orphans == LOST


def test_what_a_leader_holds_itself_is_not_lost_once_it_commits() -> None:
    group = Group([[1, 1], [*KEPT], [1, 1]])
    group["n1"].replica.handler.orphans = LOST
    group.elect("n1")
    assert group["n1"].replica.handler.orphans is None
    assert group["n0"].log == group["n1"].log
