"""Admits appends to a node while there is room for them, and refuses the others at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.body_check import checked_body_bytes, checked_lengths
from dledger.config import NodeConfig
from dledger.core.replica import Replica
from dledger.entry import Body
from dledger.errors import DiskFull, EntryTooLarge, LogFull, Rejected
from dledger.node.turn import Turn
from dledger.store.disk_room import DiskRoom
from dledger.waits.pending_appends import Done, PendingAppends


class AppendGate:
    """The room of one node, in entries and bytes of bodies: see NodeConfig."""

    def __init__(
        self,
        config: NodeConfig,
        replica: Replica,
        pending: PendingAppends,
        turn: Turn,
        submit: Callable[[Sequence[Body], int, Done, bool], None],
        room: DiskRoom,
    ) -> None:
        self._config = config
        self._max_body_bytes = config.store.max_body_bytes
        self._replica = replica
        self._pending = pending
        self._turn = turn
        self._waiting = turn.submissions
        self._submit = submit
        self._room = room

    def held(self) -> tuple[int, int]:
        """Return the number of entries that wait to be applied, and the bytes of their bodies."""
        pending, waiting = self._pending, self._waiting
        return pending.entries + waiting.entries, pending.body_bytes + waiting.body_bytes

    def submit(self, bodies: Sequence[Body], done: Done, at_once: bool = False) -> None:
        """Admit these bodies, to be appended in the next turn; `at_once`: see Driver.

        Raises NotLeader, LeadershipMoving, BodyInvalid, EntryTooLarge, LogFull, DiskFull; then none
        of the bodies is admitted.
        """
        try:
            self._replica.check_proposable()
            total = self._admit(bodies)
            if (problem := self._room.why_short) is not None and not (
                self._config.small_appends_when_full and self._room.takes(total)
            ):
                raise DiskFull(problem)
        except Rejected:
            self._turn.tally.rejected_appends += 1
            raise
        self._submit(bodies, total, done, at_once)

    def _admit(self, bodies: Sequence[Body]) -> int:
        """Check these bodies and the room for them; return their bytes."""
        if type(bodies) in (tuple, list) and len(bodies) == 1:
            total = longest = checked_body_bytes(bodies[0])
        else:
            lengths = checked_lengths(bodies)
            total, longest = sum(lengths), max(lengths, default=0)
        if longest > self._max_body_bytes:
            raise EntryTooLarge(longest, self._max_body_bytes)
        entries, held_bytes = self.held()
        # A submission larger than the whole room is admitted when no other one waits.
        full = entries + len(bodies) > self._config.max_pending_entries
        if entries and (full or held_bytes + total > self._config.max_pending_bytes):
            raise LogFull(entries, held_bytes)
        return total
