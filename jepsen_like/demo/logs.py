"""Compares the logs that the nodes left on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dledger.entry import HEADER_BYTES
from dledger.store.scan import scan_folder


def committed_bytes_are_identical(folders: Sequence[Path]) -> bool:
    """Whether the committed parts of the logs are equal, byte for byte."""
    scans = [scan_folder(str(folder)) for folder in folders]
    limit = min(scan.committed for scan in scans)
    if limit < 0:
        return False
    ends = []
    for scan in scans:
        last = next(p.header for p in scan.entries(check_sums=False) if p.header.index == limit)
        ends.append(last.pos + HEADER_BYTES + last.body_size)
    if len(set(ends)) != 1 or any(scan.verify() for scan in scans):
        return False
    return all(
        _same(tuple(segment.path for segment in segments), segments[0].start, ends[0])
        for segments in zip(*(scan.segments for scan in scans), strict=False)
    )


def _same(paths: tuple[str, ...], start: int, end: int) -> bool:
    """Whether the files are equal up to the position `end` of the log."""
    contents = {Path(path).read_bytes()[: max(0, end - start)] for path in paths}
    return len(contents) == 1
