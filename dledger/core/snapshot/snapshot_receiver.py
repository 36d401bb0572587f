"""Follower side: whether a leader's snapshot is of any use here, and when the log goes for it.

The one rule: the log is replaced only if it does not hold the entry that the offered log begins
behind. Then nothing from there on is the same as the leader's, so whatever this member ever
acknowledged and any leader committed lies before it, and is in the snapshot; the new, empty log
still ends at or behind all of that, so no election is decided by less than before. And if the log
does hold that entry, the leader can append from there: nothing is dropped, however old the
snapshot is (what etcd calls fast-forward).
"""

from __future__ import annotations

from dledger.core.entry_handler import EntryHandler
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import InstallOutcome, InstallSnapshot, InstallSnapshotResponse
from dledger.core.snapshot.snapshot_offer import SnapshotOffer
from dledger.entry import NO_TERM
from dledger.errors import PeerFault


class SnapshotReceiver:
    """Judges offers; the pieces that are wanted wait in `take_pieces` for whoever writes them."""

    __slots__ = ("_answers", "_handler", "_pieces", "_state", "_view")

    def __init__(self, state: MemberState, view: LedgerView, handler: EntryHandler) -> None:
        self._state = state
        self._view = view
        self._handler = handler
        self._pieces: list[InstallSnapshot] = []
        self._answers: list[InstallSnapshotResponse] = []

    def handle(self, message: InstallSnapshot) -> None:
        """Take a piece or a question of the present leader."""
        if self._agrees(message.offer):
            self._answer(message, InstallOutcome.AGREES)
        else:
            self._pieces.append(message)

    def take_pieces(self) -> list[InstallSnapshot]:
        """Pieces and questions to be answered by what is on disk, in their order."""
        if not self._pieces:
            return []
        pieces, self._pieces = self._pieces, []
        return pieces

    def received(self, message: InstallSnapshot, count: int) -> None:
        """`count` bytes of the file that `message` was about are here, from its beginning on."""
        self._answer(message, InstallOutcome.RECEIVING, count)

    def refused(self, message: InstallSnapshot) -> None:
        """The file that `message` was about cannot be taken here."""
        self._answer(message, InstallOutcome.REFUSED)

    def install(self, message: InstallSnapshot, group: NumberedConfiguration | None = None) -> bool:
        """The whole file is on disk, and its sums are right: begin the log anew, if need be.

        `group` is the configuration in its header, None where there is none.

        Whether it is begun anew. What has to be written comes with the replica's `take_writes`,
        and must be written while no sync runs. A leader that is none any more is not obeyed: the
        next one will offer a snapshot as well, and finds this one here.
        """
        if not self._is_obeyed(message):
            return False
        restarts = not self._agrees(message.offer)
        if restarts:
            self._handler.restart_log(message.offer.begin, group)
        self._answer(message, InstallOutcome.AGREES)
        return restarts

    @property
    def has_answers(self) -> bool:
        """Whether the leader is to be told something."""
        return bool(self._answers)

    def take_answers(self) -> list[InstallSnapshotResponse]:
        """What the leader is to be told."""
        if not self._answers:
            return []
        answers, self._answers = self._answers, []
        return [answer for answer in answers if answer.term == self._state.term]

    def _is_obeyed(self, message: InstallSnapshot) -> bool:
        return message.term == self._state.term and self._state.leader is not None

    def _answer(self, message: InstallSnapshot, outcome: InstallOutcome, count: int = 0) -> None:
        if self._is_obeyed(message):
            term, identity = self._state.term, message.offer.identity
            self._answers.append(InstallSnapshotResponse(term, outcome, *identity, count))

    def _agrees(self, offer: SnapshotOffer) -> bool:
        """Whether this log holds what the offered one begins behind; if so, follow the commit."""
        state, view, before = self._state, self._view, offer.begin.before_index
        here = view.term_at(before)
        # NO_TERM stands for "not in this log": two logs that both lack an entry do not agree on it.
        agrees = before <= view.last_index and here == offer.begin.before_term != NO_TERM
        if before > view.before_begin and not agrees:
            if before <= state.committed:
                raise PeerFault(
                    state.leader or "a leader",
                    f"its snapshot begins behind entry {before} of term {offer.begin.before_term}, "
                    f"committed here is one of term {here}",
                )
            return False
        # All of the snapshot is committed; how much of it is here tells its last entry.
        held = offer.index if view.term_at(offer.index) == offer.term else before
        self._handler.verified = max(self._handler.verified, min(held, view.last_index))
        self._handler.commit(held)
        return True
