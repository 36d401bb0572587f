"""Counts acknowledgements and computes the commit index."""

from __future__ import annotations

from collections.abc import Container

from dledger.core.ledger_view import LedgerView
from dledger.core.membership.quorum import Quorum


class QuorumAckChecker:
    """The leader's tally: the index up to which each member has the log durably.

    An index is committed once a quorum has it and it is of the leader's own term; older entries
    are committed with it, never by counting (Raft 5.4.2, figure 8). Acknowledgements of learners,
    and of a leader that no longer votes, are noted and do not count.
    """

    __slots__ = ("_acked", "_quorum", "_term")

    def __init__(self, quorum: Quorum, term: int) -> None:
        self._acked: dict[str, int] = {}
        self._quorum = quorum
        self._term = term

    def follow(self, quorum: Quorum, members: Container[str]) -> None:
        """Switch to another configuration: count by `quorum`, and forget removed members."""
        self._quorum = quorum
        self._acked = {name: index for name, index in self._acked.items() if name in members}

    def acknowledge(self, member: str, index: int) -> bool:
        """Note that `member` has the log up to `index`; return whether that is an advance."""
        if index <= self._acked.get(member, -1):
            return False
        self._acked[member] = index
        return True

    def forget(self, member: str) -> None:
        """Drop the acknowledgements of `member`, because it may have lost those entries."""
        self._acked.pop(member, None)

    def committed(self, view: LedgerView) -> int | None:
        """Return the highest index that this tally commits; None if it commits nothing."""
        index = self._quorum.committed_index(self._acked)
        if index < 0 or view.term_at(index) != self._term:
            return None
        return index
