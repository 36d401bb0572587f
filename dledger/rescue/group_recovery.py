"""Begins a group again from one member, after its quorum was lost for good.

This gives up Raft's guarantee on purpose, once, by an operator's decision. Entries that only the
lost members held are lost. Entries of this member that the group never committed become committed:
no remaining member could distinguish them. docs/operations.md says what may be lost when.

Entries of magic 3 set the members of the group from now on: this member as the only voter, and
learners. They follow the rules for such changes (a joint phase, and its end), so every reader of
the log computes the same members; only the old quorum's agreement is missing.

The old members must not take part again with their old logs. Therefore the folder begins a new
generation of the group (`dledger.store.generation`) before anything else is written. One voter is
enough to begin with: the others join with empty folders and get the log from it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

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
from dledger.errors import ConfigInvalid, DLedgerError
from dledger.rescue.survivor import Survivor, look_at
from dledger.store.disk import Disk, OsDisk, failing
from dledger.store.folder import DATA, INDEX, LOCK, node_folder
from dledger.store.generation import Generation, is_generation
from dledger.store.generation_file import FILE_NAME as GENERATION
from dledger.store.generation_file import GenerationFile
from dledger.store.hard_state_file import FILE_NAME as HARD_STATE
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.small_file import write_small_file
from dledger.store.standing_file import FILE_NAME as UNPROVEN
from dledger.store.store_config import StoreConfig

# Files are copied in pieces of this size.
_PIECE_BYTES = 256 * 1024

# The record of the recovery, in the folder of the copies.
DONE = "recovery.json"


class RecoveryRefused(DLedgerError):
    """The group was not begun again; nothing was changed."""

    folder: str
    problem: str
    _template = "{folder}: {problem}"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of a recovery.

    Attributes:
        folder, group, node_id: the recovered member's.
        generation, mark: those of the generation that begins with it.
        term: of the new entries.
        kept_through: the last old entry. Later entries that the group committed are lost.
        known_committed: the recorded commit index. The entries after it, up to `kept_through`,
            count as committed now, whether they were or not.
        members: the members of the group now.
        copies: the folder with copies of the changed files, as they were before.
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
        path: the folder of a stopped member.
        accepted_through: the last entry in it. By naming it the operator accepts that later
            committed entries are lost.
        address: where the member will listen, host:port.
        mark: 16 random hexadecimal digits. They distinguish this recovery from one of a copy of
            the folder: members of the two refuse each other.
        learners: members that will get the log, each with its address. They begin with empty
            folders.
        when: the time, for the record of what was done.
        disk: where the folder is.

    An interrupted call can be repeated; a further generation does no harm.

    Raises:
        RecoveryRefused: the log ends elsewhere, or is broken inside.
        ConfigInvalid: there is no member's folder, or the members or the mark are invalid.
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
    with failing("recover", survivor.folder):
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
            copies=copies,
            when=when,
        )
        write_small_file(disk, copies, DONE, json.dumps(asdict(done), indent=1).encode() + b"\n")
    return done


def recovery_steps(
    before: NumberedConfiguration | None, node_id: str, address: str, learners: Mapping[str, str]
) -> list[Configuration]:
    """Return the configurations that lead, by legal steps, to `node_id` as the only voter.

    `before` is None for a group that never changed: its first change may be any.
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
    # Only now: a new member may have the address of a lost one.
    if added or own != address:
        steps.append(simple(steps[-1], [UpdateAddress(node_id, address), *added]))
    return steps


def check_holds_entries(survivor: Survivor, last_index: int) -> None:
    """Raise RecoveryRefused if `last_index`, of the entries to begin again from, names none."""
    if last_index == BEFORE_FIRST_INDEX:
        problem = "it holds no entry: there is nothing to begin again from"
        raise RecoveryRefused(survivor.folder, problem)


def _check(survivor: Survivor, accepted_through: int) -> None:
    folder = survivor.folder
    check_holds_entries(survivor, survivor.last_index)
    if accepted_through != survivor.last_index:
        problem = f"its log ends with entry {survivor.last_index}, not {accepted_through}"
        raise RecoveryRefused(folder, problem)
    if survivor.last_index < survivor.committed:
        problem = (
            f"its log is broken after entry {survivor.last_index}, and entry "
            f"{survivor.committed} is recorded as committed: run `dledger repair` on it first, "
            "or take another member's folder"
        )
        raise RecoveryRefused(folder, problem)
    if os.path.basename(folder) != os.path.basename(node_folder("", survivor.node_id)):
        problem = f"a node looks for its data in a folder dledger-{survivor.node_id}: rename it"
        raise RecoveryRefused(folder, problem)


def _copy(disk: Disk, survivor: Survivor, generation: int) -> str:
    """Copy the files that will be changed; durable on return. The folder is locked meanwhile."""
    folder = survivor.folder
    with contextlib.closing(disk.lock(f"{folder}/{LOCK}")):
        names, number, name = disk.list(folder), 1, f"recovery-{generation}"
        while name in names:
            number += 1
            name = f"recovery-{generation}-{number}"
        copies = f"{folder}/{name}"
        disk.make_folder(copies)
        for name in (HARD_STATE, UNPROVEN, GENERATION):
            if name in names:
                _copy_durably(disk, f"{folder}/{name}", f"{copies}/{name}")
        for part in (DATA, INDEX):
            disk.make_folder(f"{copies}/{part}")
            last = max(disk.list(f"{folder}/{part}"), default=None)
            if last is not None:
                _copy_durably(disk, f"{folder}/{part}/{last}", f"{copies}/{part}/{last}")
            disk.sync_folder(f"{copies}/{part}")
        disk.sync_folder(copies)
    return copies


def _copy_durably(disk: Disk, source: str, target: str) -> None:
    """Copy a file, sparsely: zeros take no space in the copy, and no time on the disk."""
    with contextlib.ExitStack() as stack:
        reader = disk.open(source, writable=False)
        stack.callback(reader.close)
        writer = disk.create(target)
        stack.callback(writer.close)
        at = 0
        while piece := reader.read(_PIECE_BYTES, at):
            if piece.strip(b"\0"):
                writer.write(piece, at)
            at += len(piece)
        writer.grow(at)
        writer.sync()


def _rewrite(disk: Disk, survivor: Survivor, steps: list[Configuration]) -> int:
    """Append the configurations in a new term, and commit the whole log; return that term."""
    base = os.path.dirname(survivor.folder) or "."
    with contextlib.closing(
        open_store(disk, base, StoreConfig(), survivor.group, survivor.node_id)
    ) as store:
        if store.last_index != survivor.last_index:
            problem = (
                f"the log goes on to entry {store.last_index} after damage at entry "
                f"{survivor.last_index + 1}: run `dledger repair` on it first"
            )
            raise RecoveryRefused(survivor.folder, problem)
        return _append(store, survivor, steps)


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
    store.set_orphans(None)  # the recovered group has these entries
    return term
