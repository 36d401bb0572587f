"""A leader's snapshot beside what a follower has committed: the entry that decides."""

from __future__ import annotations

import pytest

from dledger.core.hard_state import HardState
from dledger.core.messages import Heartbeat, InstallOutcome, InstallSnapshot
from dledger.core.messages import InstallSnapshotResponse as Answer
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.errors import PeerFault
from tests.dledger.core.core_group import Member

# The offered log begins behind this entry, which is of term 3 in the leader's log.
BEFORE = 69
OFFER = SnapshotOffer(80, 3, 240, 1000, LogBegin(BEFORE, 3, 207, 6900))


def follower(terms: list[int], committed: int) -> Member:
    """n0, which follows n1 in term 3, and has committed so far; all of its log is durable."""
    member = Member("n0", ["n0", "n1"], terms, HardState(3, None, committed))
    member.replica.receive("n1", Heartbeat(3, committed, 1), 0.0)
    member.leaving(0.0)
    return member


def offered(member: Member) -> list[Answer]:
    """The answers to the offer, for which every byte is on disk already."""
    member.replica.receive("n1", InstallSnapshot(3, OFFER, 0, 0), 0.0)
    for piece in member.replica.receiver.take_pieces():
        member.replica.receiver.install(piece)
    return [message for _, message in member.leaving(0.0) if isinstance(message, Answer)]


def test_a_snapshot_that_contradicts_the_last_committed_entry_is_refused() -> None:
    member = follower([1] * 40 + [2] * 60, committed=BEFORE)
    with pytest.raises(PeerFault, match=f"entry {BEFORE} of term 3, but the committed entry"):
        offered(member)
    assert (member.replica.view.last_index, member.written) == (99, [])


def test_a_snapshot_may_replace_what_comes_right_behind_the_last_committed_entry() -> None:
    member = follower([1] * 40 + [2] * 60, committed=BEFORE - 1)
    [done] = offered(member)
    assert done.outcome is InstallOutcome.AGREES
    view = member.replica.view
    assert (view.before_begin, view.last_index) == (BEFORE, BEFORE)
    assert len(member.written) == 1


def test_a_snapshot_that_begins_behind_the_last_committed_entry_replaces_nothing() -> None:
    member = follower([1] * 40 + [3] * 30, committed=BEFORE)  # ends with that entry
    [done] = offered(member)
    assert done.outcome is InstallOutcome.AGREES
    view = member.replica.view
    assert (view.before_begin, view.last_index, member.committed) == (-1, BEFORE, BEFORE)
    assert member.written == []


def test_a_log_that_ends_one_entry_short_of_the_beginning_is_replaced() -> None:
    member = follower([1] * 40 + [3] * 29, committed=BEFORE - 1)
    [done] = offered(member)
    assert done.outcome is InstallOutcome.AGREES
    view = member.replica.view
    assert (view.before_begin, view.last_index, member.committed) == (BEFORE, BEFORE, BEFORE)
    assert len(member.written) == 1


def test_a_log_that_begins_where_the_snapshots_log_does_is_kept() -> None:
    member = follower([1] * 40 + [3] * 40, committed=79)
    member.replica.applied_to(79)
    member.replica.view.discard_before(BEFORE + 1)
    [done] = offered(member)
    assert done.outcome is InstallOutcome.AGREES
    view = member.replica.view
    assert (view.before_begin, view.last_index, member.committed) == (BEFORE, 79, 79)
    assert member.written == []
