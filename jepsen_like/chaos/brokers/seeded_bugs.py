"""Mistakes made on purpose in brokers: a run must find each of them."""

from __future__ import annotations

from collections.abc import Callable

from broker.locks.processor import LockProcessor
from broker.log.submissions import Then
from broker.offsets.commands import CommittedOffset
from broker.offsets.commits import OffsetCommits
from broker.offsets.state import OFFSETS
from broker.sends.pending_messages import MadeMessages, PendingMessages, PendingSend, Replies
from broker.sends.sends import Sends
from jepsen_like.chaos.brokers.known_bugs import CHAOS_BUGS, SIMULATED_BUGS
from jepsen_like.simulation.broker.broker_bugs import BROKER_BUGS
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug
from remoting.bodies.consumer_group import QueueLock


def _nothing(_: object) -> None:
    """Whatever becomes of the messages."""


def _sends_acknowledged_early() -> list[Replacement]:
    def add(self: Sends, send: PendingMessages) -> None:
        # Half messages are left alone: their reply names a place in the log.
        if not isinstance(send, PendingSend) or send.replied is not None:
            added(self, send)
            return
        silent = MadeMessages(send.topic, send.queue_id, send.records, _nothing, send.attach)
        added(self, silent)
        replies: Replies = {}
        send.stored([0] * len(send.records), replies)
        for origin, commands in replies.items():
            origin.send_all(commands)

    added = Sends.add
    return [Replacement(Sends, "add", add)]


def _offsets_in_memory() -> list[Replacement]:
    def add(self: OffsetCommits, offset: CommittedOffset, then: Then | None) -> None:
        tables = self._state[OFFSETS].tables
        tables.setdefault((offset.group, offset.topic), {})[offset.queue_id] = offset.offset
        if then is not None:
            then(None)

    return [Replacement(OffsetCommits, "add", add)]


def _locks_in_memory() -> list[Replacement]:
    def change(
        self: LockProcessor,
        asked: QueueLock,
        is_lock: bool,
        queues: list[tuple[str, int]],
        then: Then,
    ) -> None:
        time_ms = self._lock_clock.now_ms(self._clock(), self._log.term, self._locks.time_ms)
        change_state = self._locks.lock if is_lock else self._locks.unlock
        change_state(asked.group, asked.client_id, queues, time_ms)
        then(None)

    return [Replacement(LockProcessor, "_change_locks", change)]


_MADE: dict[str, Callable[[], list[Replacement]]] = {
    "sends-acknowledged-early": _sends_acknowledged_early,
    "offsets-in-memory": _offsets_in_memory,
    "locks-in-memory": _locks_in_memory,
}
# As SeededBug, by the names of KNOWN_BUGS.
SEEDED_BUGS: dict[str, SeededBug] = {
    **{name: SeededBug(name, bug.what, _MADE[name]) for name, bug in CHAOS_BUGS.items()},
    **{name: BROKER_BUGS[name] for name in SIMULATED_BUGS},
}
