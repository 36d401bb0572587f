"""Reads the log to rebuild damaged consume queues, a piece at a time.

Between two pieces the member goes on: it applies entries, drops the log's beginning, or takes over
the state of another snapshot. If the log begins later or the state was replaced, the rebuild starts
again.
"""

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from broker.machine import BrokerMachine
from broker.messages.state import MESSAGES
from broker.store.queue_rebuild import QueueRebuild
from dledger import Entry

_log = logging.getLogger(__name__)

# Read in one step: about a millisecond of the event loop.
STEP_BYTES: Final = 256 * 1024


class LogStatus(Protocol):
    """See `dledger.Status`, which implements it."""

    @property
    def first_index(self) -> int:
        """The first index that the log still has."""


class ReadableLog(Protocol):
    """See `dledger.Node`, which implements it."""

    def status(self) -> LogStatus: ...

    def entries(self, first: int, max_bytes: int) -> Sequence[Entry]:
        """Return committed entries from `first` on, if there are any."""


class RebuildSteps:
    """One rebuild of the damaged queues of a machine."""

    def __init__(self, log: ReadableLog, machine: BrokerMachine) -> None:
        self._log = log
        self._machine = machine
        self._begin()

    def _begin(self) -> None:
        machine = self._machine
        first = self._log.status().first_index
        # A restore in a thread changes the state before the queues. So this state is that of these
        # queues, or a later one; or the queues are about to change, and the rebuild starts again.
        self._to_mend = to_mend = machine.queues.to_mend
        messages = machine.state[MESSAGES]
        # The log may still have entries before the first one that is kept. Their messages were
        # dropped, and it is forgotten which of them were refused.
        self._index = max(first, messages.kept_from) if first else 0
        passed_over = messages.passed_over
        self._rebuild = QueueRebuild(
            to_mend,
            self._index == 0,
            machine.state.registry,
            machine.state.folder,
            passed_over.known(),
        )
        if to_mend.queues:
            _log.warning(
                "files of %d consume queues are damaged or missing: making them again from entries "
                "%d and later",
                len(to_mend.queues),
                self._index,
            )
            if 0 < self._index < passed_over.known_from:
                _log.warning(
                    "so many records are no messages that those before entry %d are not known: "
                    "some may be taken for messages",
                    passed_over.known_from,
                )

    def _begin_again(self) -> None:
        self._rebuild.close()
        self._begin()

    def close(self) -> None:
        self._rebuild.close()

    def step(self) -> bool:
        """Read the next piece; return whether there is more to do. Raises DiskFailed."""
        if self._machine.queues.to_mend is not self._to_mend:
            self._begin_again()  # another snapshot was restored
        if not self._to_mend.queues:
            return False
        if self._log.status().first_index > self._index:
            self._begin_again()  # the log begins later now
        entries = self._log.entries(self._index, STEP_BYTES)
        # Entries after the snapshot are in the queues already, or have deleted them.
        before = [entry for entry in entries if entry.pos < self._to_mend.log_end]
        self._rebuild.take(before)
        if before and len(before) == len(entries):
            self._index = before[-1].index + 1
            return True
        self._rebuild.finish()
        return bool(self._machine.queues.damaged)  # another snapshot was restored meanwhile
