"""The state machine that a node drives: the fold, the consume queues, then waiting requests."""

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
from broker.store.queue_sync import QueueSync
from dledger import Entry, MachineTooOld


class BrokerMachine:
    """Implements `dledger.SnapshottingMachine` and `dledger.RetainingMachine`.

    A snapshot holds the state, and not the consume queues: their files are synced before it is
    written, and a node that starts with it goes on with them. With a snapshot that another member
    wrote it does not: its own files lack the messages that came before (see `store.synced_mark`).

    Args:
        queues: the consume queues to keep.
        registry: the features whose entries are folded.
        folder: for what the state keeps on disk; None keeps it in memory. What an earlier run left
            in it is removed.

    Attributes:
        state: the folded log. The same object for ever.
        queues: the consume queues.
        on_applied: called with the effects of each run, after it is in the state and the queues.
            Must not raise: an error would stop the node.
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
        self.queues = queues
        self.on_applied: Callable[[Folded], None] | None = None

    def apply(self, entries: Sequence[Entry]) -> Sequence[EntryRefused | None]:
        """Apply a run of committed entries; one result for each.

        Raises MachineTooOld: an entry is of a newer broker.
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
        """The first entry of the log to keep, from the last retention entry."""
        return self.state[MESSAGES].kept_from

    def snapshot(self) -> Iterator[bytes]:
        """The state as of now; with the first chunk the consume queues up to here are durable."""
        return _synced_before(self.queues.sync_due(self.state.log_end), captured(self.state))

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Go on from a snapshot. Raises SnapshotUnreadable, DiskFailed."""
        self.state.become(restored(chunks, self.state.registry, self.state.folder))
        messages = self.state[MESSAGES]
        self.queues.resume(messages.queue_ends, self.state.log_end, messages.begins)

    def close(self) -> None:
        """Close all files."""
        self.queues.close()
        self.state.close()


def _synced_before(sync: QueueSync, chunks: Iterator[bytes]) -> Iterator[bytes]:
    sync.run()
    yield from chunks
