"""Reads on a member that does not lead: it asks the leader which index to wait for (thesis 6.4).

One question is in flight at a time, and it covers every read that began before it left. If it gets
no answer, or the leader changes, the member asks again under a new number. An answer counts for the
reads that began before *its* question, whichever leader sent it and however late: that leader still
led after it received the question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import NamedTuple

from dledger.core.messages import ReadRequest, ReadResponse
from dledger.core.reads.read_index import ReadReady


class _Waiting(NamedTuple):
    ticket: int
    number: int  # of the first question that covers the read


class ForwardedReads:
    """This member's questions to leaders."""

    __slots__ = ("_answered", "_asked", "_number", "_repeat_at", "_repeat_s", "_waiting")

    def __init__(self, first_number: int, repeat_s: float) -> None:
        # Numbers used before a restart must never be used again: a late answer to one of them
        # would confirm a read that began after it.
        self._number = first_number
        self._repeat_s = repeat_s
        self._repeat_at = float("inf")
        self._waiting: deque[_Waiting] = deque()
        self._asked: tuple[str, int] | None = None  # leader and term of the open question
        self._answered = first_number

    def add(self, ticket: int) -> None:
        """Add a read, which waits for the next question."""
        self._waiting.append(_Waiting(ticket, self._number + 1))

    def question(self, leader: str | None, term: int, now: float) -> ReadRequest | None:
        """Return the question to send to the leader of this term now, if one is due."""
        if leader is None or not self._waiting:
            self._repeat_at = float("inf")
            self._asked = None
            return None
        open_question = self._asked == (leader, term) and self._answered < self._number
        if open_question and now < self._repeat_at:
            return None
        self._number += 1
        self._asked = (leader, term)
        self._repeat_at = now + self._repeat_s
        return ReadRequest(term, self._number)

    def answer(self, response: ReadResponse) -> list[ReadReady]:
        """Return the reads that an answer covers: none if the question was never asked."""
        if response.number > self._number:
            return []
        self._answered = max(self._answered, response.number)
        ready = []
        while self._waiting and self._waiting[0].number <= response.number:
            ready.append(ReadReady(self._waiting.popleft().ticket, response.index))
        return ready

    def drop(self, tickets: Container[int]) -> None:
        """Forget reads that were given up."""
        self._waiting = deque(read for read in self._waiting if read.ticket not in tickets)

    def take_all(self) -> list[int]:
        """Return and forget all waiting reads: this member leads now, and confirms them itself."""
        tickets = [read.ticket for read in self._waiting]
        self._waiting.clear()
        return tickets

    @property
    def next_deadline(self) -> float:
        """When to repeat the question."""
        return self._repeat_at if self._waiting else float("inf")
