"""Who is told what, when appends are applied and when a leadership ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dledger.entry_run import EntryRun
from dledger.errors import Discarded, InvariantBroken, LeadershipLost, NodeClosed
from dledger.node_end import NodeEnd
from dledger.snapshots.node_snapshots import Snapshots
from dledger.waits.pending_appends import Appended, Outcome, PendingAppends


class Waiters:
    def __init__(self) -> None:
        self.pending = PendingAppends()
        self.told: dict[int, Outcome] = {}

    def add(self, first: int, last: int, term: int) -> None:
        def done(outcome: Outcome) -> None:
            assert first not in self.told, "told twice"
            self.told[first] = outcome

        self.pending.add(first, last, term, 10 * (last - first + 1), done)

    def apply(self, first: int, last: int, term: int) -> None:
        indexes = range(first, last + 1)
        positions = [index * 100 for index in indexes]
        run = EntryRun(first, term, 1, positions, [b""] * len(indexes))
        self.pending.applied(run, [f"r{index}" for index in indexes])


def test_a_submission_is_answered_when_all_of_its_entries_are_applied() -> None:
    waiters = Waiters()
    waiters.add(5, 8, 2)
    waiters.apply(3, 6, 2)
    assert not waiters.told
    waiters.apply(7, 9, 2)
    assert waiters.told[5] == [Appended(i, 2, i * 100, f"r{i}") for i in range(5, 9)]
    assert (waiters.pending.entries, waiters.pending.body_bytes) == (0, 0)


def test_nobody_can_tell_about_entries_that_were_not_committed_when_a_leadership_ended() -> None:
    waiters = Waiters()
    waiters.add(5, 5, 2)
    waiters.add(6, 7, 2)
    waiters.pending.end_leadership(5, lambda _: 2, "n1")
    assert 5 not in waiters.told
    lost = waiters.told[6]
    assert isinstance(lost, LeadershipLost)
    assert (lost.index, lost.term, lost.leader, lost.retry_safe) == (6, 2, "n1", False)
    waiters.apply(5, 5, 2)
    assert waiters.told[5] == [Appended(5, 2, 500, "r5")]


def test_an_entry_in_whose_place_another_was_committed_is_certainly_lost() -> None:
    waiters = Waiters()
    waiters.add(5, 6, 2)
    waiters.add(7, 7, 2)
    waiters.pending.end_leadership(9, lambda index: 2 if index < 6 else 3, "n1")
    assert isinstance(waiters.told[5], LeadershipLost)  # one of the two is committed
    assert isinstance(waiters.told[7], Discarded)
    assert waiters.told[7].retry_safe


def test_an_append_is_never_answered_with_an_entry_of_another_leader() -> None:
    waiters = Waiters()
    waiters.add(5, 5, 2)
    with pytest.raises(InvariantBroken):
        waiters.apply(5, 5, 3)
    assert not waiters.told


def test_everybody_is_told_when_the_node_stops() -> None:
    waiters = Waiters()
    waiters.add(1, 1, 1)
    waiters.add(2, 9, 1)
    waiters.pending.close(NodeEnd())
    assert all(isinstance(outcome, NodeClosed) for outcome in waiters.told.values())
    assert len(waiters.told) == 2
    assert waiters.pending.entries == 0


def test_appends_that_a_leaders_snapshot_replaces_are_answered_when_it_replaces_the_log() -> None:
    """They were committed, so the end of the leadership left them waiting to be applied."""
    pending, outcomes = PendingAppends(), list[Outcome]()
    for index in (5, 6, 9):
        pending.add(index, index, 1, 10, outcomes.append)
    snapshots: Any = object.__new__(Snapshots)
    snapshots.awaited = SimpleNamespace(snapshot=None)
    snapshots._snapshotter = SimpleNamespace(log_replaced=lambda: None)
    snapshots._pending = pending
    snapshots._replica = SimpleNamespace(state=SimpleNamespace(leader="n1"))
    snapshot = SimpleNamespace(header=SimpleNamespace(index=6))
    snapshots._log_replaced(snapshot)
    assert [type(outcome) for outcome in outcomes] == [LeadershipLost, LeadershipLost]
    assert pending.entries == 1
