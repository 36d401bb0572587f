"""Compares the voters that a member is started with to its folder's record of the group's birth.

The first start records the list of voters. A later start with other names is refused, because two
members with different lists elect two leaders. Once the log holds a change of the group, the log
decides, and the list of a start is ignored. See docs/membership.md.
"""

from __future__ import annotations

import logging

from dledger.core.admission.standing import Standing
from dledger.core.membership.configuration import Configuration
from dledger.entry import Magic, decode_entries
from dledger.errors import DataFolderMismatch, FirstVotersDiffer, LogCorrupt
from dledger.store.birth_file import BirthFile
from dledger.store.birth_record import BirthRecord, shown_names
from dledger.store.noop_body import BEFORE_BIRTHS, birth_of
from dledger.store.segment_store import SegmentStore

logger = logging.getLogger(__name__)


def settle_birth(
    file: BirthFile, store: SegmentStore, group: str, began_with: Configuration, *, changed: bool
) -> BirthRecord:
    """Settle how the group of a starting member began; durable in its folder on return.

    Args:
        file: the folder's record.
        store: the folder's log.
        group: the group's name, as the member is started.
        began_with: the voters that the member is started with; empty for a member that joins.
        changed: whether the log or a snapshot holds a configuration.

    Raises:
        DataFolderMismatch: the folder belongs to another group or birth.
        FirstVotersDiffer: the group began with other voters.
        DiskFailed, OSError: the disk failed.
    """
    before = file.record
    in_log = _readable_birth(store)
    if before is None:
        first_voters = None if changed or _founder_that_joins(store, began_with) else began_with
        record = BirthRecord(group, first_voters, in_log)
    else:
        _check(file, before, group, in_log)
        first_voters = _first_voters(file.path, before, store, began_with, changed)
        record = BirthRecord(group, first_voters, before.birth or in_log)
    if record != before:
        file.write(record)
    return record


def committed_birth(store: SegmentStore, committed: int) -> bytes:
    """Return the birth in entry 0 if that entry is kept and committed, else empty bytes.

    Raises LogCorrupt, DiskFailed.
    """
    if committed < 0 or store.first_index > 0 or store.last_index < 0:
        return b""
    (entry,) = decode_entries(store.read(0, 0, 1))
    return birth_of(entry.body) if entry.magic == Magic.NOOP else BEFORE_BIRTHS


def _readable_birth(store: SegmentStore) -> bytes:
    """Return `committed_birth`, or empty bytes if entry 0 is damaged (the scrubber reports it)."""
    try:
        return committed_birth(store, store.hard_state.committed)
    except LogCorrupt as error:
        logger.warning("the birth of the group cannot be read from the log: %s", error)
        return b""


def _founder_that_joins(store: SegmentStore, began_with: Configuration) -> bool:
    """Return whether an earlier version ran here with voters, and this start names none."""
    return not began_with.voters and store.last_index >= 0


def _check(file: BirthFile, record: BirthRecord, group: str, in_log: bytes) -> None:
    if record.group != group:
        raise DataFolderMismatch(file.path, f"group {record.group}", f"group {group}")
    if record.birth and in_log and in_log != record.birth:
        found = f"a group of birth {record.birth.hex()}"
        raise DataFolderMismatch(file.path, found, f"birth {in_log.hex()}, as in its log")


def _first_voters(
    path: str, record: BirthRecord, store: SegmentStore, now: Configuration, changed: bool
) -> Configuration | None:
    """Return the first voters that apply. Raises FirstVotersDiffer."""
    first = record.first_voters
    if first is None or first.voters == now.voters:
        return first if first is None else now  # addresses may be newer
    if not now.voters:
        return now if _founded_nothing(record, store) else first
    if not changed:
        began, started = tuple(sorted(first.voters)), tuple(sorted(now.voters))
        raise FirstVotersDiffer(path, record.group, began, started)
    logger.info(
        "the log holds the members of group %s: the voters that this start names (%s) are ignored",
        *(record.group, shown_names(now.voters)),
    )
    return first


def _founded_nothing(record: BirthRecord, store: SegmentStore) -> bool:
    """Return whether this member may join a group though it was once started with a list of voters.

    It may if its log is empty and it still has to prove itself, as every member that joins.
    """
    empty = store.last_index < 0 and not record.birth
    return empty and store.standing is not Standing.PROVEN
