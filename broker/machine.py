"""The state machine of the node: it folds entries, writes consume queues, then wakes requests."""

import shutil
from collections.abc import Callable, Iterator, Sequence

from broker.errors import EntryTooNew
from broker.log.entry import FORMAT_VERSION
from broker.log.fold import fold
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, Registry
from broker.log.state_snapshot import STATE_FORMAT, captured, restored
from broker.messages.state import MESSAGES
from broker.store.consume_queues import ConsumeQueues
from dledger import Entry, MachineTooOld


class BrokerMachine:
    """Implements `dledger.SnapshottingMachine` and `dledger.RetainingMachine`.

    A snapshot holds the state without the consume queues. Their files are synced before the
    snapshot is written, and a node that restarts from it continues with them. After a snapshot of
    another member the queues are rebuilt: the own files lack earlier messages (see
    `store.synced_mark`).

    Args:
        folder: for the state's files; None keeps everything in memory. Files of an earlier run are
            removed.

    Attributes:
        state: the folded log; never replaced by another object.
        on_applied: called with the effects of each run, once state and queues have them. Must not
            raise: an error would stop the node.
    """

    snapshot_format = STATE_FORMAT
    machine_name = "broker"
    machine_version = FORMAT_VERSION

    def __init__(
        self, queues: ConsumeQueues, registry: Registry, folder: str | None = None
    ) -> None:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        self.state = BrokerState(registry, folder=folder)
        self._messages = self.state[MESSAGES]
        self.queues = queues
        self.on_applied: Callable[[Folded], None] | None = None

    def apply(self, entries: Sequence[Entry]) -> Sequence[EntryRefused | None]:
        """Apply a run of committed entries; return one result for each.

        Raises MachineTooOld if an entry is of a newer broker.
        """
        try:
            folded = fold(self.state, entries)
        except EntryTooNew as error:
            raise MachineTooOld(error.index, f"it is {error.what}") from error
        for topic in folded.deleted_topics:
            self.queues.delete_topic(topic)
        if folded.arrivals:
            self.queues.append(folded.arrivals)
        if self.on_applied is not None:
            self.on_applied(folded)
        return folded.results

    def log_kept_from(self) -> int:
        """Return the first index to keep, from the last retention entry."""
        return self._messages.kept_from

    def snapshot(self) -> Iterator[bytes]:
        """Capture the state. Before the first chunk is yielded, the consume queues up to here are
        synced.
        """
        sync, chunks = self.queues.sync_due(self.state.log_end), captured(self.state)

        def synced_chunks() -> Iterator[bytes]:
            sync.run()
            yield from chunks

        return synced_chunks()

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Replace the state by a snapshot. Raises SnapshotUnreadable, DiskFailed."""
        self.state.become(restored(chunks, self.state.registry, self.state.folder))
        messages = self._messages
        self.queues.resume(messages.queue_ends, self.state.log_end, messages.begins)

    def close(self) -> None:
        self.queues.close()
        self.state.close()
