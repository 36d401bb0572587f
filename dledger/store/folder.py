"""The folder of one node: its segment files, and their sizes."""

from __future__ import annotations

from typing import NamedTuple

from dledger.errors import LogCorrupt
from dledger.store.disk import Disk
from dledger.store.segment import SegmentFiles, check_spacing, file_name, start_of

DATA = "data"
INDEX = "index"
SPARE = "spare"
LOCK = "lock"


class FoundFiles(NamedTuple):
    """Segment files in a folder, by start; other files are ignored."""

    sizes: dict[int, int]

    @property
    def segment_bytes(self) -> int:
        """The segment length of these files: that of the longest; 0 without files."""
        return max(self.sizes.values(), default=0)


def node_folder(base: str, node_id: str) -> str:
    """Return a node's folder by Java DLedger's rule: <base>/dledger-<id>."""
    return f"{base}/dledger-{node_id}"


def find_files(disk: Disk, folder: str) -> FoundFiles:
    """Find the segment files of a folder and their lengths; skip files removed meanwhile."""
    sizes = {}
    for name in disk.list(folder):
        start = start_of(name)
        if start is not None:
            try:
                file = disk.open(f"{folder}/{name}", writable=False)
            except FileNotFoundError:
                continue  # retention removed it; a caller without the lock reads the record again
            try:
                sizes[start] = file.size()
            finally:
                file.close()
    return FoundFiles(dict(sorted(sizes.items())))


def drop_discarded(
    disk: Disk, folder: str, segment_bytes: int, found: FoundFiles, begin: int
) -> None:
    """Remove the files that end at `begin` or earlier, in the folder and in `found`.

    A node that stopped while it removed them may have left any of them, with gaps in between.
    """
    for start in [start for start in found.sizes if start + segment_bytes <= begin]:
        disk.remove(f"{folder}/{file_name(start)}")
        del found.sizes[start]


def check_sizes(folder: str, sizes: dict[int, int], last: int, segment_bytes: int) -> None:
    """Raise LogCorrupt unless all files but the last have full length, and none has more.

    A last file that is too short was being created when the machine stopped.
    """
    for start, size in sizes.items():
        if size > segment_bytes or (size < segment_bytes and start != last):
            raise LogCorrupt(
                f"{folder}/{file_name(start)}",
                min(size, segment_bytes),
                f"the file is {size} bytes long, the files of this log have {segment_bytes}",
            )


def open_data(disk: Disk, folder: str, segment_bytes: int, found: FoundFiles) -> SegmentFiles:
    """Open the data files: check gaps and lengths, and extend the last one to full length."""
    starts = list(found.sizes)
    check_spacing(folder, starts, segment_bytes)
    check_sizes(folder, found.sizes, max(starts, default=0), segment_bytes)
    files = SegmentFiles(disk, folder, segment_bytes, starts)
    if starts:
        files.file(starts[-1]).grow(segment_bytes)
    return files


def open_index(disk: Disk, folder: str, segment_bytes: int, found: FoundFiles) -> SegmentFiles:
    """Open the index files. Files that do not fit together are removed: the data rebuilds them."""
    starts = list(found.sizes)
    try:
        check_spacing(folder, starts, segment_bytes)
        check_sizes(folder, found.sizes, max(starts, default=0), segment_bytes)
    except LogCorrupt:
        for start in reversed(starts):
            disk.remove(f"{folder}/{file_name(start)}")
        disk.sync_folder(folder)
        starts = []
    files = SegmentFiles(disk, folder, segment_bytes, starts)
    if starts:
        files.file(starts[-1]).grow(segment_bytes)
    return files
