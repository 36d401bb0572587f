"""One sync: makes everything that was dirty when it began durable, in another thread."""

from __future__ import annotations

from dledger.core.hard_state import HardState
from dledger.errors import DiskFailed, InvariantBroken
from dledger.store.disk import DiskFile
from dledger.store.hard_state_file import HardStateFile, StoreRecord
from dledger.store.store_health import StoreHealth


class SegmentSyncWork:
    """The `SyncWork` of a SegmentStore. The store uses the result only once `done` is set."""

    def __init__(
        self,
        index: int,
        epoch: int,
        hard_state: HardState | None,
        files: list[DiskFile],
        covers_index: bool,
        record: StoreRecord | None,
        hard_state_file: HardStateFile,
        health: StoreHealth,
    ) -> None:
        self.index = index
        self.epoch = epoch
        self.hard_state = hard_state
        self.covers_index = covers_index
        self.record = record
        self.failure: DiskFailed | None = None
        self.done = False
        self._started = False
        self._files = files
        self._hard_state_file = hard_state_file
        self._health = health

    @property
    def running(self) -> bool:
        """Whether `run` has begun and not ended."""
        return self._started and not self.done

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do: `run` needs no thread then."""
        return not self._files and self.record is None

    def run(self) -> None:
        """Sync the data, mark them as synced, then write and sync the record.

        Raises DiskFailed; runs once.
        """
        if self._started:
            raise InvariantBroken("a sync ran twice")
        self._started = True
        synced: DiskFile | HardStateFile = self._hard_state_file
        try:
            for file in self._files:
                synced = file
                file.sync()
            synced = self._hard_state_file
            self._hard_state_file.mark_synced(self.index)
            if self.record is not None:
                self._hard_state_file.write(self.record, durable=True)
        except OSError as cause:
            self.failure = self._health.failure = DiskFailed("sync", synced.path, cause)
            raise self.failure from cause
        finally:
            self.done = True
