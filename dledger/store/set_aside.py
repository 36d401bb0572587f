"""Empties the folder of a member that has lost entries or votes, without deleting anything.

The member comes back like one with a replaced disk: with an empty log, and with the mark that
keeps it from voting and counting until it holds the entries that its group relies on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from dledger.core.admission.standing import Standing
from dledger.errors import BirthUnreadable, ConfigInvalid, LogCorrupt
from dledger.store.birth_file import FILE_NAME as BIRTH
from dledger.store.birth_file import BirthFile
from dledger.store.disk import Disk, OsDisk, failing
from dledger.store.folder import DATA, INDEX, LOCK
from dledger.store.generation_file import FILE_NAME as GENERATION
from dledger.store.generation_file import GenerationFile
from dledger.store.hard_state_file import FILE_NAME as HARD_STATE
from dledger.store.orphans_file import FILE_NAME as ORPHANS
from dledger.store.snapshot_folder import SNAPSHOTS
from dledger.store.standing_file import FILE_NAME as UNPROVEN
from dledger.store.standing_file import StandingFile

_PARTS = (HARD_STATE, DATA, INDEX, SNAPSHOTS, ORPHANS)

# They tell the emptied member which group it belongs to, and stay unless they cannot be read.
_OF_GROUP: dict[str, Callable[[Disk, str], object]] = {GENERATION: GenerationFile, BIRTH: BirthFile}


def set_aside(folder: str, disk: Disk | None = None) -> str:
    """Move log, record and snapshots of the node of `folder` into a new folder beside them.

    `folder` is its `dledger-<id>` folder, or the one around it. The folder is marked first; if this
    is interrupted, it stays marked, and a second call moves the rest. Returns the new folder.

    Raises:
        ConfigInvalid: there is no node in the folder, or several.
        DataFolderLocked: the node runs.
        DiskFailed: it could not be written.
    """
    disk = disk or OsDisk()
    path = _node_folder(disk, folder.rstrip("/") or "/")
    with closing(disk.lock(f"{path}/{LOCK}")), failing("set aside", path):
        StandingFile(disk, path).set(Standing.LOST)
        names = disk.list(path)
        number = 1
        while f"aside-{number}" in names:
            number += 1
        aside = f"{path}/aside-{number}"
        disk.make_folder(aside)
        unreadable = [part for part in _OF_GROUP if not _is_readable(disk, path, part)]
        for part in (*_PARTS, *unreadable):
            if part in names:
                disk.rename(f"{path}/{part}", f"{aside}/{part}")
        disk.sync_folder(aside)
        disk.sync_folder(path)
    return aside


def _is_readable(disk: Disk, folder: str, part: str) -> bool:
    try:
        _OF_GROUP[part](disk, folder)
    except (LogCorrupt, BirthUnreadable):
        return False
    return True


def _node_folder(disk: Disk, folder: str) -> str:
    names = disk.list(folder)
    # A marked folder without log and record: a call was interrupted between its moves.
    half_done = UNPROVEN in names and not set(_PARTS).isdisjoint(names)
    if DATA in names or HARD_STATE in names or half_done:
        return folder
    nodes = sorted(name for name in names if name.startswith("dledger-"))
    if len(nodes) == 1:
        return f"{folder}/{nodes[0]}"
    problem = f"holds {', '.join(nodes)}: name one of them" if nodes else "holds no node"
    raise ConfigInvalid("FOLDER", f"{folder} {problem}")
