from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.folded import Arrivals
from broker.messages.record_facts import UNIT
from broker.store.consume_queue import FILE_BYTES, TAIL_BYTES, UNIT_BYTES, WRITE_UNITS
from broker.store.consume_queue_disk import OsConsumeQueueDisk, remove_leftovers
from broker.store.consume_queues import MAX_UNWRITTEN_QUEUES, WRITTEN_AT_ONCE, ConsumeQueues
from dledger.errors import DiskFailed
from tests.examples import examples

FEW = 7  # units a file in these tests


def unit(number: int) -> bytes:
    return UNIT.pack(number * 100, 91 + number, -number)


def arrivals(first: int, numbers: range) -> Arrivals:
    places, sizes = [number * 100 for number in numbers], [91 + number for number in numbers]
    return Arrivals(first, places, sizes, [-number for number in numbers])


def queues(folder: Path, max_open_files: int = 2) -> ConsumeQueues:
    return ConsumeQueues(folder / "consumequeue", max_open_files, FEW)


def fill(target: ConsumeQueues, topic: str, queue_id: int, first: int, count: int) -> None:
    target.append({(topic, queue_id): arrivals(first, range(first, first + count))})


def test_a_file_holds_300000_units() -> None:
    assert FILE_BYTES == 6_000_000
    assert UNIT.size == UNIT_BYTES == 20


def test_files_lie_where_rocketmq_has_them_and_are_named_by_their_first_byte(
    tmp_path: Path,
) -> None:
    target = queues(tmp_path)
    fill(target, "%RETRY%g", 3, 0, FEW + 1)
    target.close()
    folder = tmp_path / "consumequeue" / "%RETRY%g" / "3"
    assert sorted(path.name for path in folder.iterdir()) == [
        "00000000000000000000",
        "00000000000000000140",
    ]
    assert (folder / "00000000000000000000").stat().st_size == FEW * UNIT_BYTES


@given(
    st.lists(
        st.tuples(st.sampled_from(("A", "B")), st.integers(0, 1), st.integers(1, 20)), max_size=25
    ),
    st.lists(st.tuples(st.integers(-2, 120), st.integers(0, 40)), max_size=10),
)
@settings(max_examples=examples(60))
def test_queues_are_lists_of_units(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[str, int, int]],
    reads: list[tuple[int, int]],
) -> None:
    target = queues(tmp_path_factory.mktemp("queues"))
    model: dict[tuple[str, int], list[bytes]] = {}
    for topic, queue_id, count in batches:
        known = model.setdefault((topic, queue_id), [])
        fill(target, topic, queue_id, len(known), count)
        known += [unit(number) for number in range(len(known), len(known) + count)]
    for (topic, queue_id), known in model.items():
        assert target.end(topic, queue_id) == len(known)
        for first, count in reads:
            expected = known[first : first + count] if first >= 0 else []
            assert target.read(topic, queue_id, first, count) == b"".join(expected)
    target.close()


def test_what_is_no_longer_in_memory_is_read_from_the_files(tmp_path: Path) -> None:
    target = ConsumeQueues(tmp_path)
    count = 3 * TAIL_BYTES // UNIT_BYTES
    for first in range(0, count, 100):
        fill(target, "A", 0, first, min(100, count - first))
    assert target.read("A", 0, 0, 2) == unit(0) + unit(1)
    assert target.read("A", 0, count - 1, 5) == unit(count - 1)
    middle = count // 2
    assert target.read("A", 0, middle, 800)[:UNIT_BYTES] == unit(middle)
    target.close()


MORE = WRITE_UNITS + 5


def file_bytes(folder: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in (folder / "consumequeue" / topic).glob("*/*"))


def test_units_are_written_many_at_a_time(tmp_path: Path) -> None:
    target = ConsumeQueues(tmp_path / "consumequeue")
    for number in range(MORE):
        fill(target, "A", 0, number, 1)
    assert file_bytes(tmp_path, "A") == WRITE_UNITS * UNIT_BYTES
    # The first of them lie in the file only, the last in memory only.
    for first in (0, WRITE_UNITS - 1, WRITE_UNITS, MORE - 1):
        assert target.read("A", 0, first, MORE) == b"".join(map(unit, range(first, MORE)))
    target.close()
    assert file_bytes(tmp_path, "A") == MORE * UNIT_BYTES


def test_what_a_snapshot_stands_for_is_written(tmp_path: Path) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, FEW + 1)
    sync = target.sync_due(1)
    fill(target, "A", 0, FEW + 1, 1)  # comes meanwhile, and is of the next one
    sync.run()
    assert file_bytes(tmp_path, "A") == (FEW + 1) * UNIT_BYTES
    assert {Path(path).name for path in sync.paths} == {f"{0:020d}", f"{FEW * UNIT_BYTES:020d}"}
    target.close()


def test_a_snapshot_writes_nothing_when_it_begins_and_each_unit_once(tmp_path: Path) -> None:
    disk = CountingDisk()
    target = ConsumeQueues(tmp_path / "consumequeue", disk=disk)
    fill(target, "A", 0, 0, 3)
    sync = target.sync_due(1)
    assert disk.calls == 0
    sync.run()
    again = target.sync_due(1)
    assert not again.paths
    assert not target._unwritten
    fill(target, "A", 0, 3, 2)
    target.close()
    content = (tmp_path / "consumequeue" / "A" / "0" / f"{0:020d}").read_bytes()
    assert content == b"".join(map(unit, range(5)))


def test_a_snapshot_syncs_what_was_written_while_it_began(tmp_path: Path) -> None:
    target = ConsumeQueues(tmp_path / "consumequeue", write_units=4)
    fill(target, "A", 0, 0, 1)
    sync = target.sync_due(1)
    fill(target, "A", 0, 1, 4)  # the queue writes all of it by itself
    sync.run()
    target.sync_due(2).run()
    fill(target, "A", 0, 5, 1)
    target.close()
    content = (tmp_path / "consumequeue" / "A" / "0" / f"{0:020d}").read_bytes()
    assert content == b"".join(map(unit, range(6)))


def test_a_snapshot_makes_no_file_again_that_is_removed_meanwhile(tmp_path: Path) -> None:
    target = queues(tmp_path)
    for topic in ("removed", "deleted", "anew"):
        fill(target, topic, 0, 0, 2 * FEW + 2)
    sync = target.sync_due(1)
    target.remove_files("removed", 0, 100 * (2 * FEW + 1))
    target.delete_topic("deleted")
    target.delete_topic("anew")
    target.append({("anew", 0): arrivals(0, range(70, 71))})
    sync.run()
    folder = tmp_path / "consumequeue"
    kept = folder / "removed" / "0"
    assert [path.name for path in kept.iterdir()] == [f"{2 * FEW * UNIT_BYTES:020d}"]
    assert not (folder / "deleted").exists()
    assert not (folder / "anew").exists()
    assert target.read("anew", 0, 0, 9) == unit(70)
    target.close()


def test_not_many_queues_have_units_in_memory_only(tmp_path: Path) -> None:
    target = ConsumeQueues(tmp_path / "consumequeue")
    for queue_id in range(MAX_UNWRITTEN_QUEUES + 3):
        fill(target, "A", queue_id, 0, 1)
    assert file_bytes(tmp_path, "A") == 3 * UNIT_BYTES
    target.close()


def test_a_file_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 2 * FEW + 2)
    target.remove_files("A", 0, 100 * (2 * FEW + 1))
    target.close()
    folder = tmp_path / "consumequeue" / "A" / "0"
    assert [path.name for path in folder.iterdir()] == [f"{2 * FEW * UNIT_BYTES:020d}"]


def test_a_disk_that_takes_nothing_when_it_is_closed_is_left_to_the_next_start(
    tmp_path: Path,
) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 1)
    (tmp_path / "consumequeue").write_text("in the way")
    with pytest.raises(OSError, match="consumequeue"):
        target.sync_due(1).run()
    with pytest.raises(OSError, match="consumequeue"):  # not forgotten by the first one
        target.sync_due(1).run()
    target.close()


@pytest.mark.parametrize("damage", ["torn", "missing", "stale", "garbage"])
def test_files_of_an_earlier_run_are_rebuilt_by_the_fold_whatever_became_of_them(
    tmp_path: Path, damage: str
) -> None:
    first_run = queues(tmp_path)
    fill(first_run, "A", 0, 0, 2 * FEW + 3)
    first_run.close()
    last = tmp_path / "consumequeue" / "A" / "0" / f"{2 * FEW * UNIT_BYTES:020d}"
    if damage == "torn":
        last.write_bytes(last.read_bytes()[:31])
    elif damage == "missing":
        last.unlink()
    elif damage == "garbage":
        last.write_bytes(b"\xff" * 400)
    second_run = queues(tmp_path)
    # Only a part is committed so far; what the files hold behind it does not count.
    fill(second_run, "A", 0, 0, FEW + 1)
    assert second_run.end("A", 0) == FEW + 1
    assert second_run.read("A", 0, FEW, 30) == unit(FEW)
    fill(second_run, "A", 0, FEW + 1, FEW + 5)
    assert second_run.read("A", 0, 0, 99) == b"".join(unit(n) for n in range(2 * FEW + 6))
    second_run.close()


def test_a_deleted_topic_leaves_no_files_and_begins_anew(tmp_path: Path) -> None:
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 3)
    fill(target, "AB", 0, 0, 2)
    target.delete_topic("A")
    assert not (tmp_path / "consumequeue" / "A").exists()
    assert target.end("A", 0) == 0
    fill(target, "A", 0, 0, 1)
    assert target.read("A", 0, 0, 9) == unit(0)
    assert target.read("AB", 0, 0, 9) == unit(0) + unit(1)
    target.delete_topic("never sent to")
    target.close()


def test_a_file_that_was_cut_while_it_was_in_use_is_an_error_not_a_wrong_answer(
    tmp_path: Path,
) -> None:
    target = queues(tmp_path)
    total = TAIL_BYTES // UNIT_BYTES + FEW
    fill(target, "A", 0, 0, total)
    (tmp_path / "consumequeue" / "A" / "0" / f"{0:020d}").write_bytes(b"")
    with pytest.raises(DiskFailed, match="was the file cut"):
        target.read("A", 0, 0, 1)
    target.close()


def test_a_disk_that_takes_nothing_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").write_text("in the way")
    target = queues(tmp_path)
    fill(target, "A", 0, 0, 1)
    with pytest.raises(OSError, match="consumequeue"):
        target.sync_due(1).run()
    (tmp_path / "consumequeue").unlink()
    target.sync_due(1).run()
    assert file_bytes(tmp_path, "A") == UNIT_BYTES


class CountingDisk(OsConsumeQueueDisk):
    """Counts what is done to folders and files, but for writes to those that are open."""

    def __init__(self) -> None:
        self.calls = 0

    def open(self, path: str, to_write: bool) -> int:
        self.calls += 1
        return super().open(path, to_write)

    def make_folder(self, path: str) -> None:
        self.calls += 1
        super().make_folder(path)

    def remove_folder(self, path: str) -> None:
        self.calls += 1
        super().remove_folder(path)


def test_one_run_of_entries_makes_few_files_however_many_queues_are_new(tmp_path: Path) -> None:
    disk, count = CountingDisk(), 1024
    target = ConsumeQueues(tmp_path / "consumequeue", disk=disk)
    target.append({("A", queue_id): arrivals(0, range(1)) for queue_id in range(count)})
    first = disk.calls
    assert first <= 3 * WRITTEN_AT_ONCE
    for _ in range(count // WRITTEN_AT_ONCE):
        before = disk.calls
        target.write_some()
        assert disk.calls - before <= 3 * WRITTEN_AT_ONCE
    assert len(target._unwritten) == MAX_UNWRITTEN_QUEUES
    for queue_id in range(count):
        assert len(target.read("A", queue_id, 0, 2)) == UNIT_BYTES
    target.close()
    assert len(list((tmp_path / "consumequeue" / "A").iterdir())) == count


def test_a_topic_is_deleted_by_one_call_and_its_files_are_removed_later(tmp_path: Path) -> None:
    disk = CountingDisk()
    folder = tmp_path / "consumequeue"
    target = ConsumeQueues(folder, disk=disk)
    for topic in ("A", "B"):
        target.append({(topic, queue_id): arrivals(0, range(1)) for queue_id in range(300)})
        target.sync_due(1).run()
    before = disk.calls
    target.delete_topic("A")
    target.delete_topic("never made")
    assert disk.calls == before + 2  # one for each
    assert sorted(one.name for one in folder.iterdir()) == [".removed", ".synced", "B"]
    assert {key[0] for key in target.keys()} == {"B"}  # noqa: SIM118
    target.append({("A", 0): arrivals(0, range(1))})  # it is made again, and begins anew
    target.delete_topic("A")
    remove_leftovers(str(folder))
    remove_leftovers(str(tmp_path / "nothing there"))
    assert list((folder / ".removed").iterdir()) == []
    assert target.end("B", 7) == 1
    target.close()
