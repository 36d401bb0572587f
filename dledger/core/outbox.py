"""A member's outgoing messages: those that may leave now, and those that wait for a sync."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dledger.core.agenda import SEND, Agenda
from dledger.core.entry_handler import Write
from dledger.core.hard_state import HardState
from dledger.core.membership.membership import ChangeOutcome
from dledger.core.messages import Message, PushResponse
from dledger.core.promise_record import PromiseRecord
from dledger.core.reads.read_index import ReadLost, ReadReady

# Messages that wait for one sync. A member sends each peer a handful of kinds, so a hundred
# members fit. The limit bounds the answers to strangers that call under ever new names while the
# disk hangs.
MAX_WAITING_MESSAGES = 1024


class Writes(NamedTuple):
    """The writes for the store, in order. `hard_state` is set if the record must be rewritten."""

    writes: Sequence[Write]
    hard_state: HardState | None


class Outgoing(NamedTuple):
    """A message and the member it goes to."""

    peer: str
    message: Message


class Outcomes(NamedTuple):
    """The outcomes of reads and of changes of the group since they were last taken."""

    reads_ready: Sequence[ReadReady]
    reads_lost: Sequence[ReadLost]
    changes: Sequence[ChangeOutcome] = ()


class Outbox:
    """All messages of a member pass through here, so no promise leaves before it is on disk.

    A message that waits for the sync replaces an older one of its kind to the same peer: each
    answer supersedes the one before it, and a peer repeats a question whose answer was lost. So the
    outbox does not grow while a disk hangs.
    """

    __slots__ = ("_agenda", "_leaving", "_record", "_waiting")

    def __init__(self, record: PromiseRecord, agenda: Agenda) -> None:
        self._record = record
        self._agenda = agenda
        self._leaving: list[Outgoing] = []
        self._waiting: dict[tuple[object, ...], Outgoing] = {}

    def send(self, peer: str, message: Message) -> None:
        """Send a message now: a question, or an answer that promises nothing."""
        self._leaving.append(Outgoing(peer, message))
        self._agenda.due |= SEND

    def broadcast(self, peers: Iterable[str], message: Message) -> None:
        self._leaving += [Outgoing(peer, message) for peer in peers]
        self._agenda.due |= SEND

    def promise(self, peer: str, message: Message) -> None:
        """Send a message that rests on the term or the vote, once both are durable."""
        if self._record.is_durable:
            self._leaving.append(Outgoing(peer, message))
            self._agenda.due |= SEND
            return
        kind: tuple[object, ...] = (peer, type(message))
        if isinstance(message, PushResponse):
            kind += (message.phase, message.ok)
        self._waiting.pop(kind, None)  # so that the new message goes last
        if len(self._waiting) < MAX_WAITING_MESSAGES:
            self._waiting[kind] = Outgoing(peer, message)

    def forget_promises(self) -> None:
        """Drop the waiting messages, because a new term began."""
        self._waiting.clear()

    def release(self) -> None:
        """Release the waiting messages if the term and the vote are durable now."""
        if self._waiting and self._record.is_durable:
            self._leaving += self._waiting.values()
            self._waiting.clear()
            self._agenda.due |= SEND

    def take(self) -> list[Outgoing]:
        leaving, self._leaving = self._leaving, []
        return leaving
