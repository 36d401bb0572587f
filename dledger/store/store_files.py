"""The files of an open store."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.store.disk import Disk, DiskLock
from dledger.store.hard_state_file import HardStateFile
from dledger.store.orphans_file import OrphansFile
from dledger.store.segment import SegmentFiles
from dledger.store.spare_segments import SpareSegments
from dledger.store.standing_file import StandingFile


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The open files of one folder."""

    disk: Disk
    data: SegmentFiles
    index: SegmentFiles
    hard_state: HardStateFile
    standing: StandingFile
    orphans: OrphansFile
    spares: SpareSegments
    lock: DiskLock

    def close(self) -> None:
        """Close them all; the lock last."""
        self.data.close()
        self.index.close()
        self.hard_state.close()
        self.lock.close()
