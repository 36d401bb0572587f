"""A member that starts asks the others what they remember of its promises.

A folder that was restored from an older copy, or was swapped for one, looks complete. But its term,
its vote and its log went back: the member could vote twice in a term, or for a candidate that lacks
entries which it acknowledged. So a member that starts gives no vote and does not stand until all
other voters have answered, or for half an election timeout, which ends before any election timer
does. If one of them remembers more than the folder holds, the folder is not believed: the member is
in doubt, like one that lost its disk, and proves itself (`dledger.core.admission.admission`).

A member whose log may shrink in a power cut (with a flush interval) does not ask.
"""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.admission.standing import Forgotten
from dledger.core.messages import Recall, Recollection
from dledger.core.shared_parts import SharedParts

_NEVER = float("inf")


class Recalling:
    """The questions that one member asks after its start. Times in seconds."""

    __slots__ = ("_ask_at", "_awaited", "_began", "_number", "_repeat_s", "_state", "_until")

    def __init__(self, shared: SharedParts, number: Callable[[], int], now: float) -> None:
        config, state = shared.config, shared.state
        self._state = state
        self._repeat_s = config.heartbeat_interval_s
        self._ask_at = now
        self._until = now + config.recall_timeouts * config.election_timeout_s
        self._began = (state.term, state.voted_for, state.durable)
        asks = config.recall_timeouts > 0 and state.proven and state.votes
        self._awaited = set(state.other_voters) if asks else set()
        self._number = number() if self._awaited else 0
        state.recalls = bool(self._awaited)

    def tick(self, now: float) -> None:
        """Take part in elections from now on if all voters have answered, or the time is over."""
        over = now >= self._until or not self._awaited or not self._state.proven
        if over:
            self._state.recalls = False

    def question_to(self, peer: str) -> Recall | None:
        """Return the question to a member that can be reached now, unless it has answered."""
        if not self._state.recalls or peer not in self._awaited:
            return None
        return Recall(self._state.term, self._number)

    def question(self, now: float) -> tuple[list[str], Recall] | None:
        """Return the members to ask now, and the question, if one is due."""
        if not self._state.recalls or now < self._ask_at:
            return None
        self._ask_at = now + self._repeat_s
        return sorted(self._awaited), Recall(self._state.term, self._number)

    @property
    def next_deadline(self) -> float:
        """When `tick` or `question` has something to do."""
        return min(self._ask_at, self._until) if self._state.recalls else _NEVER

    def answered(self, sender: str, answer: Recollection) -> Forgotten | None:
        """Handle an answer; return what this member forgot, if the answer shows that it did."""
        if not self._state.recalls or answer.number != self._number:
            return None
        self._awaited.discard(sender)
        term, voted_for, durable = self._began
        forgot_vote = answer.promised == term and answer.voted and voted_for != sender
        if answer.promised > term or forgot_vote or answer.held > durable:
            return Forgotten(sender, answer.promised, answer.held, term, durable)
        return None
