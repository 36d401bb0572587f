"""Counts acknowledgements and says how far the log is committed."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.core.ledger_view import LedgerView


class QuorumAckChecker:
    """The leader's tally: how far each voter has the log, durably.

    An index is committed once a quorum has it and it is of the leader's own term; older entries
    are committed with it, never by counting (Raft 5.4.2, figure 8).
    """

    __slots__ = ("_acked", "_quorum", "_term")

    def __init__(self, voters: Sequence[str], quorum: int, term: int) -> None:
        self._acked = dict.fromkeys(voters, -1)
        self._quorum = quorum
        self._term = term

    def acknowledge(self, voter: str, index: int) -> bool:
        """Note that `voter` has the log up to `index`; whether that is news."""
        if index <= self._acked[voter]:
            return False
        self._acked[voter] = index
        return True

    def forget(self, voter: str) -> None:
        """`voter` may have lost what it acknowledged: it counts again when it says so again."""
        self._acked[voter] = -1

    def committed(self, view: LedgerView) -> int | None:
        """The highest index this tally commits, or None if it commits nothing."""
        index = sorted(self._acked.values(), reverse=True)[self._quorum - 1]
        if index < 0 or view.term_at(index) != self._term:
            return None
        return index
