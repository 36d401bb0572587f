"""When a member may go on with its consume queues, and how others are made again from the log."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import msgpack
import pytest

from broker.features import REGISTRY, empty_state
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.state_snapshot import captured
from broker.machine import BrokerMachine
from broker.messages.record_facts import UNIT
from broker.retention.commands import KeepLogFrom
from broker.store.consume_queue import UNIT_BYTES
from broker.store.consume_queue_disk import OS_DISK
from broker.store.rebuild_steps import RebuildSteps
from broker.store.synced_mark import NOTHING_SYNCED, SyncedMark
from broker.topics.commands import DeleteTopic
from dledger import Entry
from tests.broker.log.test_broker_fold import Log, with_runs, with_topic
from tests.broker.retention.keeper_alone import keeper_alone
from tests.broker.store.test_broker_consume_queue import FEW, queues

# What a snapshot calls the entries that were passed over.
TABLE = "passed over"
# Entries that a log gives at once.
AT_ONCE = 2


class Where(NamedTuple):
    first_index: int


class KeptLog:
    """What is left of a log, a few entries at a time."""

    def __init__(self, log: Log, first_index: int = 0) -> None:
        self.log = log
        self.first_index = first_index

    def status(self) -> Where:
        return Where(self.first_index)

    def entries(self, first: int, max_bytes: int) -> list[Entry]:
        first = max(first, self.first_index)
        return self.log.entries[first : first + AT_ONCE]


def machine_in(folder: Path) -> BrokerMachine:
    return BrokerMachine(queues(folder), REGISTRY)


def snapshot_of(log: Log, last: int | None = None) -> list[bytes]:
    """The snapshot that any other member would write after an entry."""
    state = empty_state()
    fold(state, log.entries if last is None else log.entries[: last + 1])
    return list(captured(state))


def mended(machine: BrokerMachine, log: KeptLog) -> None:
    steps = RebuildSteps(log, machine)
    while steps.step():
        pass
    assert not machine.queues.damaged


def messages(machine: BrokerMachine, kept: int = 0) -> tuple[int, list[int]]:
    """Where queue A/0 begins, and the places of its messages."""
    begin = machine.queues.begin("A", 0, kept)
    units = machine.queues.read("A", 0, begin, 99)
    return begin, [unit[0] for unit in UNIT.iter_unpack(units)]


def made_again(log: Log, count: int) -> list[Entry]:
    """Topic A is deleted and created again, and gets so many messages."""
    log.append(encode_log_command(DeleteTopic("A", 9)))
    with_topic(log)
    return [log.append_record("A", 0, offset) for offset in range(count)]


def a_log(count: int) -> Log:
    log = Log()
    with_topic(log)
    for offset in range(count):
        log.append_record("A", 0, offset)
    return log


# --- which files may be gone on with --------------------------------------------------------------


def test_a_member_goes_on_with_its_files_after_a_snapshot_of_its_own(tmp_path: Path) -> None:
    log, machine = a_log(5), machine_in(tmp_path)
    machine.apply(log.entries)
    saved = list(machine.snapshot())
    machine.queues.close()
    again = machine_in(tmp_path)
    again.restore(iter(saved))
    assert not again.queues.damaged
    assert messages(again)[1] == [entry.body_pos for entry in log.entries[1:]]
    again.queues.close()


def test_after_another_members_snapshot_the_files_of_a_topic_made_again_are_not_believed(
    tmp_path: Path,
) -> None:
    log, machine = a_log(5), machine_in(tmp_path)
    machine.apply(log.entries)
    list(machine.snapshot())
    new = made_again(log, 5)  # while this member is down
    machine.queues.close()
    again = machine_in(tmp_path)
    again.restore(iter(snapshot_of(log)))
    assert again.queues.damaged == {("A", 0)}
    mended(again, KeptLog(log, new[2].index))
    assert messages(again, new[2].pos) == (2, [entry.body_pos for entry in new[2:]])
    again.queues.close()


@pytest.mark.parametrize("first_kept", [0, 3])
def test_messages_that_share_an_entry_come_back_to_their_queues(
    tmp_path: Path, first_kept: int
) -> None:
    log = a_log(1)
    with_runs(log)
    log.append_records(("A", 0, 1), ("A", 1, 0), ("A", 0, 2))
    log.append_records(("A", 0, 3), ("A", 0, 4))
    machine = machine_in(tmp_path / "own")
    machine.apply(log.entries)
    kept = log.entries[first_kept]
    begin = 0 if first_kept == 0 else 1
    expected = machine.queues.read("A", 0, begin, 99)
    assert len(expected) == (5 - begin) * UNIT_BYTES
    again = machine_in(tmp_path / "restored")
    again.restore(iter(snapshot_of(log)))
    assert again.queues.damaged == {("A", 0), ("A", 1)}
    mended(again, KeptLog(log, first_kept))
    assert again.queues.begin("A", 0, kept.pos) == begin
    assert again.queues.read("A", 0, begin, 99) == expected
    machine.queues.close()
    again.queues.close()


def test_files_without_a_mark_are_made_again_once(tmp_path: Path) -> None:
    log, machine = a_log(5), machine_in(tmp_path)
    machine.apply(log.entries)
    saved = list(machine.snapshot())
    machine.queues.close()
    (tmp_path / "consumequeue" / ".synced").unlink()  # an older version wrote none
    for is_first in (True, False):
        again = machine_in(tmp_path)
        again.restore(iter(saved))
        assert bool(again.queues.damaged) == is_first
        mended(again, KeptLog(log))
        saved = list(again.snapshot())
        again.queues.close()


def test_mended_files_are_believed_once_a_snapshot_has_synced_them(tmp_path: Path) -> None:
    # A power cut before may leave files of the right size that are full of zeros.
    log, machine = a_log(5), machine_in(tmp_path)
    machine.apply(log.entries)
    saved = list(machine.snapshot())
    machine.queues.delete_topic("A")  # lost
    machine.queues.close()
    for goes_on in (False, True):
        again = machine_in(tmp_path)
        again.restore(iter(saved))
        assert again.queues.damaged
        mended(again, KeptLog(log))
        if goes_on:
            saved = list(again.snapshot())
        again.queues.close()
    last = machine_in(tmp_path)
    last.restore(iter(saved))
    assert not last.queues.damaged
    last.queues.close()


def test_a_snapshot_does_not_vouch_for_queues_that_are_still_damaged(tmp_path: Path) -> None:
    log, machine = a_log(5), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    assert machine.queues.damaged
    # One more message makes a file of the right size, with a hole before it.
    machine.apply([log.append_record("A", 0, 5)])
    saved = list(machine.snapshot())
    machine.queues.close()
    again = machine_in(tmp_path)
    again.restore(iter(saved))
    assert again.queues.damaged
    mended(again, KeptLog(log))
    assert messages(again)[1] == [entry.body_pos for entry in log.entries[1:]]
    again.queues.close()


@pytest.mark.parametrize("content", [b"", b"\0" * 12, b"\0" * 7 + b"\x09" + b"\0" * 4, b"torn"])
def test_a_mark_that_is_not_whole_says_nothing(tmp_path: Path, content: bytes) -> None:
    mark = SyncedMark(str(tmp_path), OS_DISK)
    assert mark.read() == NOTHING_SYNCED
    mark.write(9)
    assert mark.read() == 9
    (tmp_path / ".synced").write_bytes(content)
    assert mark.read() == NOTHING_SYNCED


def test_a_queue_that_begins_with_a_file_is_whole_after_the_next_restart(tmp_path: Path) -> None:
    log, machine = a_log(FEW + 2), machine_in(tmp_path)
    kept = log.entries[1 + FEW]
    machine.restore(iter(snapshot_of(log)))
    mended(machine, KeptLog(log, kept.index))
    assert messages(machine, kept.pos)[0] == FEW
    saved = list(machine.snapshot())
    machine.queues.close()
    again = machine_in(tmp_path)
    again.restore(iter(saved))
    assert not again.queues.damaged
    assert messages(again, kept.pos)[0] == FEW
    again.queues.close()


# --- the log changes while it is read -------------------------------------------------------------


def test_a_snapshot_that_is_restored_meanwhile_begins_the_reading_anew(tmp_path: Path) -> None:
    log, machine = a_log(5), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    kept = KeptLog(log)
    steps = RebuildSteps(kept, machine)
    assert steps.step()
    with_topic(log, "B")
    log.append_record("B", 1, 0)
    new = made_again(log, 3)
    machine.restore(iter(snapshot_of(log)))
    while steps.step():
        pass
    assert not machine.queues.damaged
    assert messages(machine)[1] == [entry.body_pos for entry in new]
    assert machine.queues.end("B", 1) == 1
    machine.queues.close()


def test_a_log_whose_beginning_is_dropped_meanwhile_is_read_anew(tmp_path: Path) -> None:
    log, machine = a_log(9), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    kept = KeptLog(log)
    steps = RebuildSteps(kept, machine)
    assert steps.step()
    kept.first_index = 6
    while steps.step():
        pass
    assert messages(machine, log.entries[6].pos) == (
        5,
        [entry.body_pos for entry in log.entries[6:]],
    )
    machine.queues.close()


def test_a_log_that_is_begun_anew_meanwhile_does_not_end_the_member(tmp_path: Path) -> None:
    log, machine = a_log(9), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    kept = KeptLog(log)
    steps = RebuildSteps(kept, machine)
    assert steps.step()
    # For a later snapshot, which the machine waits for: nothing behind it is committed here yet.
    kept.first_index = 99
    while steps.step():
        pass
    with_topic(log, "B")
    log.append_record("B", 1, 0)
    machine.restore(iter(snapshot_of(log)))
    assert machine.queues.damaged == {("A", 0), ("B", 1)}
    machine.queues.close()


def test_a_snapshot_that_a_thread_restores_within_a_step_is_mended_next(tmp_path: Path) -> None:
    log, machine = a_log(5), machine_in(tmp_path)
    log.append_record("A", 1, 0)
    machine.restore(iter(snapshot_of(log)))
    behind = log.append_record("A", 0, 5)
    machine.apply([behind])
    new: list[Entry] = []

    class RestoredMeanwhile(KeptLog):
        def entries(self, first: int, max_bytes: int) -> list[Entry]:
            found = super().entries(first, max_bytes)
            if not new and behind in found:  # the last step for the first snapshot
                with_topic(log, "B")
                log.append_record("B", 1, 0)
                new.extend(made_again(log, 3))
                machine.restore(iter(snapshot_of(log)))
            return found

    mended(machine, RestoredMeanwhile(log))
    assert new
    assert messages(machine)[1] == [entry.body_pos for entry in new]
    assert machine.queues.end("B", 1) == 1
    assert len(machine.queues.read("B", 1, 0, 9)) == UNIT.size
    machine.queues.close()


def test_a_beginning_that_was_asked_for_before_the_mending_does_not_count(tmp_path: Path) -> None:
    log, machine = a_log(9), machine_in(tmp_path)
    machine.apply(log.entries)
    machine.restore(iter(snapshot_of(log)))  # of another member: the files are there
    kept = log.entries[7]
    assert machine.queues.begin("A", 0, kept.pos) == 6
    mended(machine, KeptLog(log, 3))
    assert machine.queues.begin("A", 0, kept.pos) == 6
    machine.queues.close()


def test_a_log_that_begins_behind_the_snapshot_leaves_nothing_of_its_queues(
    tmp_path: Path,
) -> None:
    log, machine = a_log(4), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    later = [log.append_record("A", 0, offset) for offset in (4, 5)]
    machine.apply(later)
    mended(machine, KeptLog(log, later[1].index))
    assert messages(machine, later[1].pos) == (5, [later[1].body_pos])
    machine.queues.close()


def test_a_log_without_an_entry_ends_the_reading(tmp_path: Path) -> None:
    log, machine = a_log(4), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    # The log was begun anew for a later snapshot, and has nothing that is committed yet.
    mended(machine, KeptLog(log, 99))
    assert messages(machine, 1 << 40) == (4, [])
    machine.queues.close()


def test_what_lies_behind_the_snapshot_is_no_part_of_the_mending(tmp_path: Path) -> None:
    log, machine = a_log(6), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    old = [entry.body_pos for entry in log.entries[1:]]
    made_again(log, 3)  # committed, and not applied yet
    mended(machine, KeptLog(log))
    assert messages(machine)[1] == old
    machine.queues.close()


def test_a_topic_that_is_deleted_meanwhile_is_not_mended(tmp_path: Path) -> None:
    log, machine = a_log(5), machine_in(tmp_path)
    machine.restore(iter(snapshot_of(log)))
    machine.apply([log.append(encode_log_command(DeleteTopic("A", 9)))])
    mended(machine, KeptLog(log))
    assert not (tmp_path / "consumequeue" / "A").exists()
    machine.queues.close()


async def test_retention_leaves_the_files_of_damaged_queues_alone(tmp_path: Path) -> None:
    log, machine = a_log(3 * FEW), machine_in(tmp_path)
    kept = log.entries[-1]
    machine.apply(
        [*log.entries, log.append(encode_log_command(KeepLogFrom(kept.index, kept.pos, 9)))]
    )
    machine.restore(iter(snapshot_of(log)))  # of another member
    (tmp_path / "consumequeue" / "A" / "0" / f"{FEW * UNIT_BYTES:020d}").unlink()
    keeper = keeper_alone(tmp_path, machine, SimpleNamespace(disk_short=None))
    await keeper.look()
    mended(machine, KeptLog(log))
    assert messages(machine, kept.pos) == (3 * FEW - 1, [kept.body_pos])
    await keeper.look()
    files = sorted((tmp_path / "consumequeue" / "A" / "0").iterdir())
    assert [file.name for file in files] == [f"{2 * FEW * UNIT_BYTES:020d}"]
    machine.queues.close()


# --- records that the fold passed over, where a log without its beginning begins ------------------


def of_an_earlier_version(snapshot: list[bytes]) -> list[bytes]:
    """A snapshot that does not say which entries were passed over."""
    return [one for one in snapshot if msgpack.unpackb(one, strict_map_key=False)[0] != TABLE]


def rebuilt(folder: Path, log: Log, first: int, is_known: bool = True) -> tuple[int, list[int]]:
    """What queue A/0 is made again of from an entry on; `is_known`: what was passed over is."""
    machine, snapshot = machine_in(folder), snapshot_of(log)
    machine.restore(iter(snapshot if is_known else of_an_earlier_version(snapshot)))
    mended(machine, KeptLog(log, first))
    found = messages(machine, log.entries[first].pos)
    machine.queues.close()
    return found


IS_KNOWN = pytest.mark.parametrize("is_known", [True, False])


@IS_KNOWN
def test_a_record_from_before_the_deletion_of_its_topic_does_not_hide_the_messages(
    tmp_path: Path, is_known: bool
) -> None:
    log = a_log(6)
    new = made_again(log, 0)
    late = log.append_record("A", 0, 6)  # proposed before the deletion was applied
    new = [log.append_record("A", 0, offset) for offset in range(3)]
    assert rebuilt(tmp_path, log, late.index, is_known) == (0, [entry.body_pos for entry in new])


@IS_KNOWN
def test_a_record_ahead_of_its_queue_does_not_hide_the_messages(
    tmp_path: Path, is_known: bool
) -> None:
    log = a_log(6)
    ahead = log.append_record("A", 0, 8)
    new = [log.append_record("A", 0, offset) for offset in (6, 7, 8, 9)]
    assert rebuilt(tmp_path, log, ahead.index, is_known) == (6, [entry.body_pos for entry in new])


@IS_KNOWN
def test_a_record_behind_the_end_of_its_queue_does_not_hide_the_messages(
    tmp_path: Path, is_known: bool
) -> None:
    log = a_log(3)
    new = [log.append_record("A", 0, offset) for offset in (3, 4)]
    log.append_record("A", 0, 4)
    new.append(log.append_record("A", 0, 5))
    assert rebuilt(tmp_path, log, new[0].index, is_known) == (3, [entry.body_pos for entry in new])


@IS_KNOWN
def test_a_record_ahead_of_its_queue_is_not_the_beginning_of_it(
    tmp_path: Path, is_known: bool
) -> None:
    log = a_log(6)
    ahead = log.append_record("A", 0, 8)
    assert rebuilt(tmp_path, log, ahead.index, is_known) == (6, [])
