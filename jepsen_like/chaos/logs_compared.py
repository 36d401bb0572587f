"""Compares the logs that members left on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dledger.errors import DLedgerError
from dledger.store.scan import StoreScan, scan_folder


def log_differences(folders: Mapping[str, Path], *, verify: bool) -> list[str]:
    """Where committed entries of two members differ, and what is broken, in sentences.

    Equal indexes with equal chained sums mean equal histories up to there.

    Args:
        folders: the folder of each node, at rest.
        verify: whether all sums are checked as well: not if the run has damaged files.
    """
    found: list[str] = []
    chains: dict[int, tuple[str, int]] = {}
    for name, folder in folders.items():
        if not folder.exists():
            continue
        try:
            scan = scan_folder(str(folder))
            if verify:
                found += [f"{name}: {problem.path}: {problem.text}" for problem in scan.verify()]
            found += _differences(name, scan, chains)
        except (DLedgerError, OSError) as error:
            found.append(f"the log of {name} cannot be read: {error}")
    return found


def _differences(name: str, scan: StoreScan, chains: dict[int, tuple[str, int]]) -> list[str]:
    for place in scan.entries(check_sums=False):
        header = place.header
        if header.index > scan.committed:
            break
        other, chain = chains.setdefault(header.index, (name, header.chain_crc))
        if chain != header.chain_crc:
            return [f"entry {header.index} of {name} is not that of {other}, and both committed it"]
    return []
