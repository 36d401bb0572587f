"""Known traps of replication; docs/traps.md says which test stands for which."""

from __future__ import annotations

from dledger.core.entry_handler import Truncation
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.core.messages import Heartbeat, Phase, PushRequest, PushResponse
from tests.dledger.core.core_group import Member

THREE = ["n0", "n1", "n2"]


def append(prev: int, prev_term: int, terms: list[int], *, term: int) -> PushRequest:
    """An APPEND of entries of one term behind `prev`."""
    runs = (TermRun(terms[0], prev + 1),)
    return PushRequest(term, Phase.APPEND, prev, prev_term, prev + len(terms), -1, runs=runs)


def test_an_old_append_from_below_the_commit_index_is_acknowledged() -> None:
    # Refused, it would send the leader back to comparing; taken by its word, it would cut.
    member = Member("n0", THREE, [1, 1, 5, 5, 5], HardState(6, None, 3))
    member.replica.receive("n1", Heartbeat(6, 3, 1), 0.0)
    member.leaving(0.0)
    member.replica.receive("n1", append(0, 1, [1], term=6), 0.0)
    [(_, answer)] = member.leaving(0.0)
    assert isinstance(answer, PushResponse)
    assert (answer.ok, answer.match) == (True, 3)
    assert (member.log, member.committed) == ([1, 1, 5, 5, 5], 3)


def test_a_sync_tells_nothing_of_an_entry_that_was_dropped_and_written_again() -> None:
    # The entry (index 1, term 2) is written, replaced under a leader of term 3, and written again
    # under one of term 4, all while the first sync is on its way. Index and term agree: the write
    # that the sync covered is another one all the same.
    member = Member("n0", THREE, [1], HardState(2))
    member.replica.receive("n1", append(0, 1, [2], term=2), 0.0)
    begun = member.begin_sync()
    for sender, leader_term, entry_term in (("n2", 3, 3), ("n1", 4, 2)):
        cut = PushRequest(leader_term, Phase.TRUNCATE, 0, 1, 0, -1, next_term=entry_term, runs=())
        member.replica.receive(sender, cut, 0.0)
        if entry_term == 3:
            member.replica.receive(sender, append(0, 1, [3], term=3), 0.0)
    member.replica.receive("n1", append(0, 1, [2], term=4), 0.0)
    assert member.log == [1, 2]
    assert member.leaving(0.0) == []
    member.replica.persisted(*begun, 0.0)
    assert member.replica.state.durable == 0
    acknowledged = [m for _, m in member.leaving(0.0) if isinstance(m, PushResponse)]
    assert all(answer.match <= 0 for answer in acknowledged)
    assert [write for write in member.written if isinstance(write, Truncation)] == [
        Truncation(0),
        Truncation(0),
    ]
    member.sync(0.0)
    [answer] = [m for _, m in member.leaving(0.0) if isinstance(m, PushResponse) and m.match == 1]
    assert answer.term == 4
