"""Begins a group again from one member, after its quorum was lost for good.

This gives up the promise of Raft on purpose, once, by an operator's word. What only the lost
members held is gone. What this member holds and the group had never committed becomes committed:
nobody who could tell the two apart is left. docs/operations.md says what may be lost when.

Entries of magic 3 say who belongs to the group from now on: this member alone, and learners.
They are ordinary steps of the rules for such changes (a joint phase, and its end), so every program
that reads the log comes to the same members; only who agreed to them is not ordinary.

The old members must not take part again with what they hold, which is why the folder begins a new
generation of the group (`dledger.store.generation`) before anything else is written. That there is
one voter only is no hardship: the others join as they are started, empty, and get the log from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Remove,
    UpdateAddress,
    enter_joint,
    leave_joint,
    simple,
)
from dledger.core.membership.configuration_codec import NumberedConfiguration, encode_configuration
from dledger.entry import BEFORE_FIRST_INDEX, Magic
from dledger.errors import ConfigInvalid, DiskFailed, DLedgerError
from dledger.rescue.survivor import Survivor, look_at
from dledger.store.disk import Disk, OsDisk
from dledger.store.folder import DATA, INDEX, LOCK, node_folder
from dledger.store.generation import Generation, is_generation
from dledger.store.generation_file import FILE_NAME as GENERATION
from dledger.store.generation_file import GenerationFile
from dledger.store.hard_state_file import FILE_NAME as HARD_STATE
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.standing_file import FILE_NAME as UNPROVEN
from dledger.store.store_config import StoreConfig
from dledger.store.sync_calls import sync_data

# Of what is copied, this much is looked at in one go.
_PIECE_BYTES = 256 * 1024

# What was done, in the folder of the copies.
DONE = "recovery.json"


class RecoveryRefused(DLedgerError):
    """The group was not begun again; nothing was changed."""

    def __init__(self, folder: str, problem: str) -> None:
        self.folder = folder
        self.problem = problem
        super().__init__(f"{folder}: {problem}")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done to a folder.

    Attributes:
        folder, group, node_id: to which.
        generation, mark: the one that begins with it.
        term: of the new entries.
        kept_through: the last entry of before. What the group committed behind it is lost.
        known_committed: how far it was recorded as committed. What lies behind that, up to
            `kept_through`, counts as committed now, whether it was or not.
        members: who belongs to the group now.
        copies: where the files that were changed are, as they were.
        when: the time, as the caller named it.
    """

    folder: str
    group: str
    node_id: str
    generation: int
    mark: str
    term: int
    kept_through: int
    known_committed: int
    members: dict[str, str]
    copies: str
    when: str


def recover_group(
    path: str,
    accepted_through: int,
    address: str,
    *,
    mark: str,
    learners: Mapping[str, str] | None = None,
    when: str = "",
    disk: Disk | None = None,
) -> Recovery:
    """Begin the group of the folder at `path` again, with its member as the only voter.

    Args:
        path: the folder of a member that is stopped.
        accepted_through: the last entry in it, as its operator read it: whoever names it has seen
            that what was committed behind it is lost.
        address: where the member will listen, host:port.
        mark: 16 hexadecimal digits drawn at random. They tell this recovery from one of a copy of
            the folder: members of the two will refuse each other.
        learners: members that will get the log, each with its address. They begin with empty
            folders.
        when: the time, for the record of what was done.
        disk: where the folder is.

    An interrupted call is done again; a further generation does no harm.

    Raises:
        RecoveryRefused: the log ends elsewhere, or is broken inside.
        ConfigInvalid: there is no member's folder, the members cannot be these, or the mark.
        DataFolderLocked: the member runs.
        LogCorrupt, HardStateLost, DiskFailed: as when a node starts.
    """
    disk = disk or OsDisk()
    survivor = look_at(path, disk)
    _check(survivor, accepted_through)
    before = survivor.configuration
    steps = recovery_steps(before, survivor.node_id, address, learners or {})
    generation = Generation(survivor.generation + 1, mark)
    if not mark or not is_generation(*generation):
        raise ConfigInvalid("mark", f"{mark!r} is not 16 hexadecimal digits")
    try:
        copies = _copy(disk, survivor, generation.number)
        GenerationFile(disk, survivor.folder).set(generation)
        term = _rewrite(disk, survivor, steps)
        done = Recovery(
            folder=survivor.folder,
            group=survivor.group,
            node_id=survivor.node_id,
            generation=generation.number,
            mark=mark,
            term=term,
            kept_through=survivor.last_index,
            known_committed=survivor.committed,
            members=dict(steps[-1].addresses),
            copies=str(copies),
            when=when,
        )
        _write_durably(copies / DONE, json.dumps(asdict(done), indent=1).encode() + b"\n")
        disk.sync_folder(str(copies))
    except OSError as cause:
        name = cause.filename if isinstance(cause.filename, str) else survivor.folder
        raise DiskFailed("recover", name, cause) from cause
    return done


def recovery_steps(
    before: NumberedConfiguration | None, node_id: str, address: str, learners: Mapping[str, str]
) -> list[Configuration]:
    """The configurations that lead, each by a legal step, to `node_id` as the only voter.

    `before` is None for a group that never changed since it began: its first change may be any.
    """
    if node_id in learners:
        raise ConfigInvalid("--learner", f"{node_id} is the member that the group begins with")
    added: list[Change] = [AddLearner(*learner) for learner in learners.items()]
    if before is None:
        alone = Configuration(voters=frozenset({node_id}), addresses={node_id: address})
        return [simple(alone, added)]
    now, steps = before.configuration, []
    if now.is_joint:
        now = leave_joint(now)
        steps.append(now)
    own = now.addresses.get(node_id, address)
    others = [Remove(member) for member in sorted(now.members - {node_id})]
    joint = enter_joint(now, [AddVoter(node_id, own), *others], auto_leave=False)
    steps += [joint, leave_joint(joint)]
    # Only now: a newcomer may have the address of one that is gone.
    if added or own != address:
        steps.append(simple(steps[-1], [UpdateAddress(node_id, address), *added]))
    return steps


def _check(survivor: Survivor, accepted_through: int) -> None:
    folder = survivor.folder
    if survivor.last_index == BEFORE_FIRST_INDEX:
        raise RecoveryRefused(folder, "it holds no entry: there is nothing to begin again from")
    if accepted_through != survivor.last_index:
        problem = f"its log ends with entry {survivor.last_index}, not {accepted_through}"
        raise RecoveryRefused(folder, problem)
    if survivor.last_index < survivor.committed:
        problem = (
            f"its log is broken behind entry {survivor.last_index}, and entry "
            f"{survivor.committed} is recorded as committed: mend it with `dledger repair` first, "
            "or take another member's folder"
        )
        raise RecoveryRefused(folder, problem)
    if os.path.basename(folder) != os.path.basename(node_folder("", survivor.node_id)):
        problem = f"a node looks for its data in a folder dledger-{survivor.node_id}: rename it"
        raise RecoveryRefused(folder, problem)


def _copy(disk: Disk, survivor: Survivor, generation: int) -> Path:
    """Copy what will be changed; durable on return. Nobody else has the folder meanwhile."""
    folder = Path(survivor.folder)
    copies = folder / f"recovery-{generation}"
    lock = disk.lock(f"{folder}/{LOCK}")
    try:
        number = 1
        while copies.exists():
            number += 1
            copies = folder / f"recovery-{generation}-{number}"
        copies.mkdir()
        for name in (HARD_STATE, UNPROVEN, GENERATION):
            if (folder / name).exists():
                _copy_durably(folder / name, copies / name)
        for part in (DATA, INDEX):
            names = sorted(path.name for path in (folder / part).iterdir())
            (copies / part).mkdir()
            if names:
                _copy_durably(folder / part / names[-1], copies / part / names[-1])
            disk.sync_folder(str(copies / part))
        disk.sync_folder(str(copies))
        disk.sync_folder(str(folder))
    finally:
        lock.close()
    return copies


def _copy_durably(source: Path, target: Path) -> None:
    """Copy a file; what is zero in it takes no room in the copy, and no time on the disk."""
    with source.open("rb") as reader, target.open("wb") as writer:
        while piece := reader.read(_PIECE_BYTES):
            if piece.strip(b"\0"):
                writer.seek(reader.tell() - len(piece))
                writer.write(piece)
        writer.truncate(reader.tell())
    _sync(target)


def _write_durably(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_data(descriptor)
    finally:
        os.close(descriptor)


def _rewrite(disk: Disk, survivor: Survivor, steps: list[Configuration]) -> int:
    """Append the configurations in a new term, and have all of the log committed; that term."""
    base = os.path.dirname(survivor.folder) or "."
    store = open_store(disk, base, StoreConfig(), survivor.group, survivor.node_id)
    try:
        if store.last_index != survivor.last_index:
            problem = (
                f"the log goes on to entry {store.last_index} behind damage at entry "
                f"{survivor.last_index + 1}: mend it with `dledger repair` first"
            )
            raise RecoveryRefused(survivor.folder, problem)
        return _append(store, survivor, steps)
    finally:
        store.close()


def _append(store: SegmentStore, survivor: Survivor, steps: list[Configuration]) -> int:
    term = max(store.hard_state.term, store.last_term) + 1
    before = survivor.configuration
    named = BEFORE_FIRST_INDEX if before is None else before.index
    for configuration in steps:
        body = encode_configuration(named, configuration)
        named = store.append(term, Magic.CONFIGURATION, (body,)).last
    store.note_committed(store.last_index)
    store.begin_sync(HardState(term, survivor.node_id, store.last_index)).run()
    store.set_standing(Standing.PROVEN)
    return term
