"""Messages on their way out of a member: those that may leave now, and those that wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dledger.core.entry_handler import Write
from dledger.core.hard_state import HardState
from dledger.core.membership.membership import ChangeOutcome
from dledger.core.messages import Message, PushResponse
from dledger.core.promise_record import PromiseRecord
from dledger.core.reads.read_index import ReadReady

# Messages that wait for one sync. A member sends each peer a handful of kinds, so a hundred
# members fit; the limit is there for strangers that call under ever new names while a disk hangs.
MAX_WAITING_MESSAGES = 1024


class Writes(NamedTuple):
    """What the store must do, in order; `hard_state` is set when the record must be rewritten."""

    writes: Sequence[Write]
    hard_state: HardState | None


class Outgoing(NamedTuple):
    """A message and the member it goes to."""

    peer: str
    message: Message


class Messages(NamedTuple):
    """What leaves this turn, and what became of the open reads and of changes of the group."""

    outgoing: Sequence[Outgoing]
    reads_ready: Sequence[ReadReady]
    reads_lost: Sequence[int]
    changes: Sequence[ChangeOutcome] = ()


class Outbox:
    """Everything a member says goes through here, so that no promise leaves before the disk has it.

    A message that waits for the sync replaces an older one of its kind to the same peer: an answer
    only ever says more than the one before it, and a lost one is asked for again. So a disk that
    hangs does not make the outbox grow.
    """

    __slots__ = ("_leaving", "_record", "_waiting")

    def __init__(self, record: PromiseRecord) -> None:
        self._record = record
        self._leaving: list[Outgoing] = []
        self._waiting: dict[tuple[object, ...], Outgoing] = {}

    def send(self, peer: str, message: Message) -> None:
        """Let a message leave now: a question, or an answer that promises nothing."""
        self._leaving.append(Outgoing(peer, message))

    def broadcast(self, peers: Iterable[str], message: Message) -> None:
        """Send the same message to all of them."""
        self._leaving += [Outgoing(peer, message) for peer in peers]

    def promise(self, peer: str, message: Message) -> None:
        """Send what rests on the term or the vote: now if they are durable, else after the sync."""
        if self._record.is_durable:
            self._leaving.append(Outgoing(peer, message))
            return
        kind: tuple[object, ...] = (peer, type(message))
        if isinstance(message, PushResponse):
            kind += (message.phase, message.ok)
        self._waiting.pop(kind, None)  # the newest goes last
        if len(self._waiting) < MAX_WAITING_MESSAGES:
            self._waiting[kind] = Outgoing(peer, message)

    def forget_promises(self) -> None:
        """A new term began: promises of an older one are of no use."""
        self._waiting.clear()

    def release(self) -> None:
        """A sync ended: let the promises leave that are durable now."""
        if self._waiting and self._record.is_durable:
            self._leaving += self._waiting.values()
            self._waiting.clear()

    @property
    def has_ready(self) -> bool:
        """Whether a message may leave now."""
        return bool(self._leaving)

    def take(self) -> list[Outgoing]:
        """The messages that leave now."""
        leaving, self._leaving = self._leaving, []
        return leaving
