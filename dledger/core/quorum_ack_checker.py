"""Counts acknowledgements and says how far the log is committed."""

from __future__ import annotations

from collections.abc import Container

from dledger.core.ledger_view import LedgerView
from dledger.core.membership.quorum import Quorum


class QuorumAckChecker:
    """The leader's tally: how far each member has the log, durably.

    An index is committed once a quorum has it and it is of the leader's own term; older entries
    are committed with it, never by counting (Raft 5.4.2, figure 8). What learners and a leader
    that no longer votes have is noted and does not count.
    """

    __slots__ = ("_acked", "_quorum", "_term")

    def __init__(self, quorum: Quorum, term: int) -> None:
        self._acked: dict[str, int] = {}
        self._quorum = quorum
        self._term = term

    def follow(self, quorum: Quorum, members: Container[str]) -> None:
        """Another configuration is in force: others decide, and who left is forgotten."""
        self._quorum = quorum
        self._acked = {name: index for name, index in self._acked.items() if name in members}

    def acknowledge(self, member: str, index: int) -> bool:
        """Note that `member` has the log up to `index`; whether that is news."""
        if index <= self._acked.get(member, -1):
            return False
        self._acked[member] = index
        return True

    def forget(self, member: str) -> None:
        """`member` may have lost what it acknowledged: it counts again when it says so again."""
        self._acked.pop(member, None)

    def committed(self, view: LedgerView) -> int | None:
        """The highest index this tally commits, or None if it commits nothing."""
        index = self._quorum.committed_index(self._acked)
        if index < 0 or view.term_at(index) != self._term:
            return None
        return index
