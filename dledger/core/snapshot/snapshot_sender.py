"""Leader side: chooses which bytes of a snapshot to send next to one peer. Pure.

Only the peer's report of how much of the file it has, from the beginning on, counts. A few pieces
are in flight at a time. If no answer comes in time, the sender asks the peer and sends the rest
again, at growing intervals. So a lost piece or answer costs only time. After the last piece the
sender repeats its question until the peer's log agrees.
"""

from __future__ import annotations

from dledger.core.messages import InstallOutcome, InstallSnapshot, InstallSnapshotResponse
from dledger.core.snapshot.snapshot_offer import PIECE_BYTES, SnapshotOffer

# Pieces in flight to one peer, 1 MiB: enough to read the next piece while one is written. More
# would only use memory, on both sides.
MAX_PIECES_IN_FLIGHT = 4

# How long the peer may be silent before the sender asks; doubled each time up to the second number.
# A megabyte over a slow link takes seconds, and the check of a large file takes longer still.
FIRST_ANSWER_TIMEOUT_S = 0.5
LAST_ANSWER_TIMEOUT_S = 8.0

# How long to wait after a refusal (a full disk, another version of the program).
REFUSED_RETRY_S = 30.0


class SnapshotSender:
    """The transfer of one snapshot to one peer."""

    __slots__ = (
        "_deadline",
        "_piece_bytes",
        "_sent",
        "_term",
        "_timeout_s",
        "acknowledged",
        "installed",
        "offer",
        "received",
        "refused",
    )

    def __init__(
        self, offer: SnapshotOffer, term: int, now: float, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.offer = offer
        self.received: int | None = None  # bytes that the peer has; None until it has reported
        self.acknowledged = 0  # bytes that the peer had by its last report
        self.refused = False
        self.installed = False  # the peer's log agrees with the offer's beginning
        self._term = term
        self._piece_bytes = piece_bytes
        self._sent = 0
        self._timeout_s = FIRST_ANSWER_TIMEOUT_S
        self._deadline = now

    def pump(self, now: float) -> list[InstallSnapshot]:
        """Return all pieces and questions that may be sent now."""
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
        if self.received is None or self._sent >= self.offer.size:
            return False
        return self._sent - self.received < MAX_PIECES_IN_FLIGHT * self._piece_bytes

    def ask_again(self, now: float) -> None:
        """Ask at once what the peer has, because the connection may have been lost."""
        if not self.refused:
            self._timeout_s = FIRST_ANSWER_TIMEOUT_S
            self._deadline = now

    def is_over(self, now: float) -> bool:
        """Return whether the peer refused, and it is time to try again with the newest snapshot."""
        return self.refused and now >= self._deadline

    def next_deadline(self) -> float:
        """Return when `pump` may have something to send without new input; minus infinity: now."""
        return float("-inf") if self._has_room else self._deadline

    def receive(self, response: InstallSnapshotResponse, now: float) -> None:
        """Handle the peer's answer: how much of the file it has, or a refusal."""
        if response.outcome is InstallOutcome.REFUSED:
            self.refused = True
            self.received = None
            self._deadline = now + REFUSED_RETRY_S
            return
        received = min(response.received, self.offer.size)
        if self.received is None:
            self._sent = received  # the answer to a question: send from there
        elif received < self.received:
            return  # a late answer; a peer that lost its part of the file says so when asked
        elif received == self.received:
            return
        self.received = self.acknowledged = received
        self._sent = max(self._sent, received)
        self._timeout_s = FIRST_ANSWER_TIMEOUT_S
        self._deadline = now + self._timeout_s
