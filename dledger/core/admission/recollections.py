"""Remembers what the other members promised, in case one of them forgets it.

It costs no work while messages flow: a leader's dispatchers know what was acknowledged. They are
read when another member asks, and when the leadership ends. A follower knows that its leader has
all committed entries. The memory ends with the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.member_state import MemberState
from dledger.entry import BEFORE_FIRST_INDEX, NO_TERM

# A group has 18 members at most, and a few more while it changes.
MAX_REMEMBERED = 64


class Promised(NamedTuple):
    """The highest term that a member was in, whether it voted in it for the remembering member, and
    up to which index it acknowledged entries that were committed.
    """

    term: int = NO_TERM
    voted: bool = False
    held: int = BEFORE_FIRST_INDEX


class Recollections:
    """The known promises of other members. `dispatchers` are those of this member as leader."""

    __slots__ = ("_answers", "_dispatchers", "_known", "_leader", "_state")

    def __init__(self, state: MemberState, dispatchers: Mapping[str, EntryDispatcher]) -> None:
        self._state = state
        self._dispatchers = dispatchers
        self._known: dict[str, Promised] = {}
        self._answers: dict[str, tuple[int, Promised]] = {}  # by asker: its number, the answer
        self._leader: str | None = None  # the last leader that this member followed

    def entered(self, member: str, term: int, *, voted: bool = False) -> None:
        """Note that a member was in `term`, by a message that rests on its durable promise."""
        known = self._known.get(member, Promised())
        if term > known.term:
            self._keep(member, Promised(term, voted, known.held))
        elif term == known.term and voted:
            self._keep(member, known._replace(voted=True))

    def followed(self, leader: str | None) -> None:
        """Note that this member follows another leader in the present term; None: it leads."""
        self._keep_leader()
        self._leader = leader
        if leader is not None:
            self.entered(leader, self._state.term)

    def asked(self, member: str, number: int) -> Promised:
        """Return what was known of a member when it first asked under this number. It cannot have
        forgotten what it promised after that.
        """
        known = self._answers.get(member)
        if known is None or known[0] != number:
            known = (number, self.of(member))
            self._answers.pop(member, None)
            self._answers[member] = known
            if len(self._answers) > MAX_REMEMBERED:
                del self._answers[next(iter(self._answers))]
        return known[1]

    def of(self, member: str) -> Promised:
        if member == self._leader:
            self._keep_leader()
        if (dispatcher := self._dispatchers.get(member)) is not None:
            self._acknowledged(dispatcher)
        return self._known.get(member, Promised())

    def stop_leading(self) -> None:
        """Remember what the followers acknowledged."""
        for dispatcher in self._dispatchers.values():
            self._acknowledged(dispatcher)

    def _keep_leader(self) -> None:
        """Remember that the last leader had all entries that are committed. Its disk may have got
        the last of them after the disks of the others. In that case the memory makes its folder
        seem older, which does no harm.
        """
        if (leader := self._leader) is not None and (known := self._known.get(leader)) is not None:
            self._keep(leader, known._replace(held=max(known.held, self._state.committed)))

    def _acknowledged(self, dispatcher: EntryDispatcher) -> None:
        if not (dispatcher.answered and dispatcher.proven):
            return
        self.entered(dispatcher.peer, self._state.term)
        known = self._known[dispatcher.peer]
        held = min(dispatcher.promised_index, self._state.committed)
        self._keep(dispatcher.peer, known._replace(held=max(held, known.held)))

    def _keep(self, member: str, promised: Promised) -> None:
        self._known.pop(member, None)
        self._known[member] = promised
        if len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]  # the member heard longest ago
