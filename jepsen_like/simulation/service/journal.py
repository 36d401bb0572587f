"""The events of a run, for a picture and for comparing two runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

from dledger.core.messages import Message
from jepsen_like.report.happened import Happened
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.node_trace import describe
from jepsen_like.simulation.service.spoken_message import spoken
from jepsen_like.simulation.virtual_node import VirtualNode
from jepsen_like.simulation.witness import Witness

# Events kept: those before a failure, and enough for the longest picture.
KEPT_EVENTS = 50_000


class _Seen:
    """The state of a member as it was noted last."""

    __slots__ = ("applied", "committed", "role", "state", "synced")

    def __init__(self) -> None:
        self.state = ""
        self.role = ""
        self.committed = self.applied = self.synced = -1


class Journal:
    """Notes the events of a run. Implements NetworkWatch."""

    def __init__(
        self, loop: EventLoop, nodes: Sequence[VirtualNode], witnesses: dict[str, Witness]
    ) -> None:
        self.events: deque[Happened] = deque(maxlen=KEPT_EVENTS)
        self.count = 0
        self._loop = loop
        self._nodes = nodes
        self._witnesses = witnesses
        self._seen = {node.name: _Seen() for node in nodes}
        self._sum = blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """A sum of all events: two runs with equal events have equal sums."""
        return self._sum.hexdigest()

    def note(
        self, kind: str, who: str, what: str = "", number: int = 0, to: str = "", more: str = ""
    ) -> None:
        """Note an event that happens now; `more` goes into the sum alone."""
        event = Happened(self._loop.now, kind, who, what, number, to)
        self.events.append(event)
        self.count += 1
        self._sum.update(f"{tuple(event)!r}{more}".encode("utf-8", "backslashreplace"))

    # --- messages -----------------------------------------------------------------------------

    def sent(self, number: int, sender: str, receiver: str, message: Message) -> None:
        self.note("sent", sender, spoken(message), number, receiver, describe(message))

    def arrived(self, number: int) -> None:
        self.note("arrived", "", number=number)

    def lost(self, number: int) -> None:
        self.note("lost", "", number=number)

    # --- members ------------------------------------------------------------------------------

    def look(self) -> None:
        """Note the changes of members; to be called after every step."""
        for node in self._nodes:
            seen, process = self._seen[node.name], node.process
            state = "down" if process is None else "frozen" if node.is_paused else "up"
            if state != seen.state:
                seen.state = state
                if state == "down":
                    seen.role, seen.committed, seen.applied = "", -1, -1
                self.note("state", node.name, state)
            if process is None:
                continue
            now = process.replica.state
            role = f"{now.role.name.lower().replace('_', '-')} {now.term}"
            if role != seen.role:
                seen.role = role
                self.note("role", node.name, role)
            synced = self._witnesses[node.name].synced_index
            if synced != seen.synced:
                seen.synced = synced
                self.note("synced", node.name, number=synced)
            if now.committed != seen.committed:
                seen.committed = now.committed
                self.note("committed", node.name, number=now.committed)
            if now.applied != seen.applied:
                seen.applied = now.applied
                self.note("applied", node.name, number=now.applied)
