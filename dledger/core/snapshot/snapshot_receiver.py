"""Follower side: decides whether to install a leader's snapshot, and when to drop the log for it.

The one rule: the log is replaced only if it does not hold the entry that the offered log begins
behind. Then no entry from there on equals the leader's. So every committed entry that this member
has acknowledged lies before that entry, and is in the snapshot. The new, empty log ends at or
behind all of those, so dropping the old one weakens no election. If the log does hold that entry,
the leader can append from there and nothing is dropped, however old the snapshot is (etcd calls
this fast-forward).
"""

from __future__ import annotations

from dledger.core.agenda import INSTALL
from dledger.core.entry_handler import EntryHandler
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import InstallOutcome, InstallSnapshot, InstallSnapshotResponse
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.entry import NO_TERM
from dledger.errors import PeerFault


class SnapshotReceiver:
    """Judges offers. Pieces of a wanted snapshot wait in `take_pieces` for the node to write."""

    __slots__ = ("_answers", "_handler", "_pieces", "_state", "_view")

    def __init__(self, state: MemberState, view: LedgerView, handler: EntryHandler) -> None:
        self._state = state
        self._view = view
        self._handler = handler
        self._pieces: list[InstallSnapshot] = []
        self._answers: list[InstallSnapshotResponse] = []

    def handle(self, message: InstallSnapshot) -> None:
        """Handle a piece or a question of the present leader. Raises PeerFault if the offer
        contradicts a committed entry.
        """
        if self._agrees(message.offer):
            self._answer(message, InstallOutcome.AGREES)
        elif self._handler.orphans is not None:
            self._answer(message, InstallOutcome.REFUSED)  # it would replace the only copy of them
        else:
            self._pieces.append(message)
            self._state.agenda.due |= INSTALL

    def take_pieces(self) -> list[InstallSnapshot]:
        """Return the pieces to write and the questions about the file on disk, in their order."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def received(self, message: InstallSnapshot, count: int) -> None:
        """Answer that the first `count` bytes of the file named in `message` are here."""
        self._answer(message, InstallOutcome.RECEIVING, count)

    def refused(self, message: InstallSnapshot) -> None:
        """Answer that this member cannot install the file named in `message`."""
        self._answer(message, InstallOutcome.REFUSED)

    def install(self, message: InstallSnapshot, group: NumberedConfiguration | None = None) -> bool:
        """Begin the log anew if needed, now that the whole file is on disk and its sums are right;
        return whether the log begins anew.

        `group` is the configuration in the file's header, None if it has none. The write comes with
        the replica's `take_writes`, and must be carried out while no sync runs. The message of a
        deposed leader is ignored: the next leader will offer a snapshot too, and find this one
        here.
        """
        if not self._is_obeyed(message):
            return False
        restarts = not self._agrees(message.offer)
        if restarts and self._handler.orphans is not None:
            self._answer(message, InstallOutcome.REFUSED)
            return False
        if restarts:
            self._handler.restart_log(message.offer.begin, group)
        self._answer(message, InstallOutcome.AGREES)
        return restarts

    def take_answers(self) -> list[InstallSnapshotResponse]:
        answers, self._answers = self._answers, []
        return [answer for answer in answers if answer.term == self._state.term]

    def _is_obeyed(self, message: InstallSnapshot) -> bool:
        return message.term == self._state.term and self._state.leader is not None

    def _answer(self, message: InstallSnapshot, outcome: InstallOutcome, count: int = 0) -> None:
        if self._is_obeyed(message):
            term, identity = self._state.term, message.offer.identity
            self._answers.append(InstallSnapshotResponse(term, outcome, *identity, count))
            self._state.agenda.due |= INSTALL

    def _agrees(self, offer: SnapshotOffer) -> bool:
        """Return whether this log holds the entry that the offered one begins behind. If so, raise
        the commit index: everything in a snapshot is committed.
        """
        state, view, before = self._state, self._view, offer.begin.before_index
        here = view.term_at(before)
        # NO_TERM stands for "not in this log": two logs that both lack an entry do not agree on it.
        agrees = before <= view.last_index and here == offer.begin.before_term != NO_TERM
        if before > view.before_begin and not agrees:
            if before <= state.committed:
                self._handler.orphaned_at(before)
                raise PeerFault(
                    state.leader or "a leader",
                    f"its snapshot begins behind entry {before} of term {offer.begin.before_term}, "
                    f"but the committed entry here is of term {here}",
                )
            return False
        # If the snapshot's last entry is here, so are all entries before it.
        held = offer.index if view.term_at(offer.index) == offer.term else before
        self._handler.verified = max(self._handler.verified, min(held, view.last_index))
        self._handler.commit(held)
        return True
