"""Leader side: which bytes of a snapshot leave next for one peer. Pure.

The peer says how much of the file it has from its beginning on; nothing else counts. A few pieces
are on their way at a time. When no word comes in time, the peer is asked and the rest sent again,
ever less often. So a piece or an answer that is lost costs time and no more: the last question
repeats until the peer's log agrees.
"""

from __future__ import annotations

from dledger.core.messages import InstallOutcome, InstallSnapshot, InstallSnapshotResponse
from dledger.core.snapshot.snapshot_offer import PIECE_BYTES, SnapshotOffer

# Pieces on their way to one peer, 1 MiB: enough to have the next one read while one is written.
# More would only lie in memory, on both sides.
MAX_PIECES_IN_FLIGHT = 4

# How long the peer may be silent before it is asked; doubled each time up to the second number. A
# megabyte over a slow link takes seconds, and the check of a large file takes longer still.
FIRST_ANSWER_TIMEOUT_S = 0.5
LAST_ANSWER_TIMEOUT_S = 8.0

# A peer that refuses (a full disk, another version of the program) is asked again so much later.
REFUSED_RETRY_S = 30.0


class SnapshotSender:
    """One snapshot on its way to one peer."""

    __slots__ = (
        "_deadline",
        "_piece_bytes",
        "_sent",
        "_term",
        "_timeout_s",
        "offer",
        "received",
        "refused",
    )

    def __init__(
        self, offer: SnapshotOffer, term: int, now: float, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.offer = offer
        self.received: int | None = None  # what the peer has; None until it has said so
        self.refused = False
        self._term = term
        self._piece_bytes = piece_bytes
        self._sent = 0
        self._timeout_s = FIRST_ANSWER_TIMEOUT_S
        self._deadline = now

    def pump(self, now: float) -> list[InstallSnapshot]:
        """Everything that may be sent now."""
        if now >= self._deadline:
            self._deadline = now + self._timeout_s
            self._timeout_s = min(2 * self._timeout_s, LAST_ANSWER_TIMEOUT_S)
            self.received, self.refused = None, False
            return [InstallSnapshot(self._term, self.offer, 0, 0)]
        if self.received is None:
            return []
        pieces = []
        while self._has_room:
            length = min(self._piece_bytes, self.offer.size - self._sent)
            pieces.append(InstallSnapshot(self._term, self.offer, self._sent, length))
            self._sent += length
        return pieces

    @property
    def _has_room(self) -> bool:
        """Whether a piece may leave now."""
        if self.received is None or self._sent >= self.offer.size:
            return False
        return self._sent - self.received < MAX_PIECES_IN_FLIGHT * self._piece_bytes

    def ask_again(self, now: float) -> None:
        """The connection may have been lost meanwhile: ask at once what the peer has."""
        if not self.refused:
            self._timeout_s = FIRST_ANSWER_TIMEOUT_S
            self._deadline = now

    def is_over(self, now: float) -> bool:
        """Whether the peer refused, and it is time to try again with whatever is newest."""
        return self.refused and now >= self._deadline

    def next_deadline(self) -> float:
        """When `pump` may have something to send though nothing arrived; minus infinity: now."""
        return float("-inf") if self._has_room else self._deadline

    def receive(self, response: InstallSnapshotResponse, now: float) -> None:
        """The peer has so much of the file, or refuses it."""
        if response.outcome is InstallOutcome.REFUSED:
            self.refused = True
            self.received = None
            self._deadline = now + REFUSED_RETRY_S
            return
        received = min(response.received, self.offer.size)
        if self.received is None:
            self._sent = received  # the answer to a question: go on from there
        elif received < self.received:
            return  # late, and of no interest; a peer that lost its part says so when asked
        elif received == self.received:
            return
        self.received = received
        self._sent = max(self._sent, received)
        self._timeout_s = FIRST_ANSWER_TIMEOUT_S
        self._deadline = now + self._timeout_s
