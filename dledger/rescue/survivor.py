"""Reads one member's folder, from which a group may be begun again.

Nothing is written, and no lock is taken. See `dledger.rescue.group_recovery` for the recovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any

from dledger.core.admission.standing import Standing
from dledger.core.membership.configuration_codec import NumberedConfiguration, decode_configuration
from dledger.entry import BEFORE_FIRST_INDEX, HEADER_BYTES, NO_TERM, Magic
from dledger.errors import ConfigInvalid, ConfigurationLost, ConfigurationMalformed
from dledger.store.birth_file import BirthFile
from dledger.store.birth_record import BirthRecord
from dledger.store.disk import Disk, OsDisk
from dledger.store.generation_file import GenerationFile
from dledger.store.scan import HeaderRun, StoreScan, scan_folder
from dledger.store.snapshot_folder import SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from dledger.store.standing_file import StandingFile


@dataclass(frozen=True, slots=True)
class Survivor:
    """One member's folder. Indexes are -1 where there is nothing.

    Attributes:
        folder: its `dledger-<id>` folder.
        group, node_id: the member's group and name.
        generation, mark: the group's generation; the mark is empty if it was never recovered.
        birth: of the group, in hexadecimal digits; empty if the folder has no record of it.
        proven: whether it holds all that was promised from it, as far as it knows.
        first_index, last_index, last_term: of its log.
        term: the highest term that it has recorded.
        committed: the recorded commit index; more entries may be committed.
        snapshot_index: the last entry in its newest whole snapshot.
        configuration: the group's configuration at the log's end; None if the folder holds none,
            because the group never changed.
        problems: the problems of the files.
        first_voters: those that the group began with; empty if the folder does not say.
    """

    folder: str
    group: str
    node_id: str
    generation: int
    mark: str
    birth: str
    proven: bool
    first_index: int
    last_index: int
    last_term: int
    term: int
    committed: int
    snapshot_index: int
    configuration: NumberedConfiguration | None
    problems: tuple[str, ...]
    first_voters: tuple[str, ...] = ()

    @property
    def reach(self) -> tuple[int, int, int]:
        """The key by which folders are ordered for a recovery: Raft's order of logs (5.4.1)."""
        return self.generation, self.last_term, self.last_index

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; of the configuration its voters and all addresses."""
        found = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "configuration"
        }
        group = None if self.configuration is None else self.configuration.configuration
        found["voters"] = None if group is None else sorted(group.voters)
        found["addresses"] = None if group is None else dict(group.addresses)
        return found


def look_at(path: str, disk: Disk | None = None) -> Survivor:
    """Read the folder of a stopped member; check every sum of its log.

    Raises:
        ConfigInvalid: there is no log in it, or no record of term and vote.
        BirthUnreadable: the record of how the group began cannot be read.
        ConfigurationLost: it names an entry with the group's configuration that cannot be read.
        OSError: it cannot be read.
    """
    disk = disk or OsDisk()
    scan = scan_folder(path, disk)
    record = scan.record
    if record is None:
        raise ConfigInvalid("FOLDER", f"{scan.folder} has no record of term and vote")
    first_index = record.before_begin + 1
    last_index, last_term = record.before_begin, record.before_begin_term
    change: tuple[HeaderRun, int] | None = None
    for run in scan.runs():
        last_index, last_term = run.headers[-1][2], run.headers[-1][3]
        for at, header in enumerate(run.headers):
            if header[0] == Magic.CONFIGURATION:
                change = run, at
    snapshot = _newest_snapshot(disk, scan, record.group, last_index)
    generation = GenerationFile(disk, scan.folder).generation
    birth = BirthFile(disk, scan.folder).record
    return Survivor(
        folder=scan.folder,
        group=record.group,
        node_id=record.node_id,
        generation=generation.number,
        mark=generation.mark,
        birth="" if birth is None else birth.birth.hex(),
        first_voters=_names(birth),
        proven=StandingFile(disk, scan.folder).standing is Standing.PROVEN,
        first_index=first_index if last_index >= first_index else BEFORE_FIRST_INDEX,
        last_index=last_index,
        last_term=max(last_term, NO_TERM),
        term=record.term,
        committed=record.committed,
        snapshot_index=BEFORE_FIRST_INDEX if snapshot is None else snapshot.index,
        configuration=_configuration(disk, change, snapshot),
        problems=tuple(f"{p.path} at byte {p.offset}: {p.text}" for p in scan.problems),
    )


def longest(survivors: Sequence[Survivor]) -> Survivor:
    """Return the folder to recover the group from. Raises ConfigInvalid for those of two groups."""
    groups = sorted({survivor.group for survivor in survivors})
    if len(groups) > 1:
        raise ConfigInvalid("FOLDER", f"these are members of {' and '.join(groups)}")
    births = sorted({survivor.birth for survivor in survivors if survivor.birth})
    if len(births) > 1:
        problem = f"these groups of one name began separately: births {' and '.join(births)}"
        raise ConfigInvalid("FOLDER", problem)
    lives = sorted({(survivor.generation, survivor.mark) for survivor in survivors})
    if len(lives) > len({generation for generation, _ in lives}):
        problem = f"these hold two recoveries of {groups[0]}: compare those of one"
        raise ConfigInvalid("FOLDER", problem)
    # Of two folders that reach equally far, prefer the one that has lost no promise.
    return max(survivors, key=lambda survivor: (survivor.reach, survivor.proven))


def _newest_snapshot(
    disk: Disk, scan: StoreScan, group: str, last_index: int
) -> SnapshotHeader | None:
    def judge(header: SnapshotHeader) -> str | None:
        return None if header.group == group and header.index <= last_index else "of another log"

    newest = SnapshotFolder(disk, scan.folder).find_newest(judge).newest
    return None if newest is None else newest.header


def _configuration(
    disk: Disk, change: tuple[HeaderRun, int] | None, snapshot: SnapshotHeader | None
) -> NumberedConfiguration | None:
    """Return the group's last configuration: in the log, or else in the snapshot."""
    try:
        if change is not None:
            run, at = change
            header = run.headers[at]
            index, offset, size = header[2], header[4] - run.segment.start, header[8]
            with closing(disk.open(run.segment.path, writable=False)) as file:
                body = file.read(size, offset + HEADER_BYTES)
            return NumberedConfiguration(index, decode_configuration(body).configuration)
        if snapshot is not None and snapshot.configuration:
            found = decode_configuration(snapshot.configuration)
            return found if found.configuration.voters else None
    except ConfigurationMalformed as error:
        index = snapshot.index if change is None and snapshot is not None else -1
        index = change[0].headers[change[1]][2] if change is not None else index
        raise ConfigurationLost(index, error.problem) from error
    return None


def _names(birth: BirthRecord | None) -> tuple[str, ...]:
    known = None if birth is None else birth.first_voters
    return () if known is None else tuple(sorted(known.voters))
