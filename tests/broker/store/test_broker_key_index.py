"""The key index: RocketMQ's layout, and nothing lost by a power cut that it says it covers."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.store.consume_queue_disk import ConsumeQueueDisk, OsConsumeQueueDisk
from broker.store.key_file import ENTRIES, SLOTS
from broker.store.key_index import KeyIndex, key_hash
from dledger import DiskFailed
from jepsen_like.chance import Chance
from jepsen_like.simulation.broker.queue_disk import VirtualQueueDisk
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk
from remoting.message.java_hash import java_hash

EVER = (0, 1 << 62)


def name_of(time_ms: int) -> str:
    return f"{time_ms:017d}"


def index_in(
    folder: str, disk: ConsumeQueueDisk | None = None, slots: int = 5, entries: int = 8
) -> KeyIndex:
    index = KeyIndex(folder, name_of, disk or OsConsumeQueueDisk(), slots, entries)
    index.open()
    return index


def found(index: KeyIndex, key: str, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return [hint.position for hint in index.find("T", key, begin_ms, end_ms) if hint]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        ("é", 233),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_the_hash_of_a_text_is_that_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


@given(st.text(max_size=200))
def test_the_hash_is_a_sum_of_code_units(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % (1 << 32)
    assert java_hash(text) % (1 << 32) == value


@given(st.text(max_size=80), st.integers(0, 80))
def test_the_hash_of_a_text_goes_on_from_that_of_its_begin(text: str, at: int) -> None:
    assert java_hash(text[at:], java_hash(text[:at])) == java_hash(text)


@given(st.text(max_size=20), st.text(max_size=60))
def test_the_hash_of_a_key_is_that_of_topic_and_key(topic: str, key: str) -> None:
    value = java_hash(f"{topic}#{key}")
    assert key_hash(topic, key) == (0 if value == -(1 << 31) else abs(value))


def test_a_file_has_the_layout_of_rocketmq(tmp_path: Path) -> None:
    index = index_in(str(tmp_path / "index"), slots=SLOTS, entries=ENTRIES)
    index.put("T", ["one"], 1000, 5_000)
    index.put("T", ["two"], 2000, 7_999)
    index.put("T", ["one"], 3000, 9_000)
    index.covered = 4000
    index.begin_sync().run()
    index.end_sync()
    (path,) = (one for one in (tmp_path / "index").iterdir() if one.name.isdigit())
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 100_000
    with path.open("rb") as file:
        assert struct.unpack(">qqqqii", file.read(40)) == (5_000, 9_000, 1000, 3000, 2, 4)
        one, two = key_hash("T", "one"), key_hash("T", "two")
        for key, head in ((one, 3), (two, 2)):
            file.seek(40 + 4 * (key % SLOTS))
            assert struct.unpack(">i", file.read(4)) == (head,)
        file.seek(40 + 4 * SLOTS)
        entries = list(struct.iter_unpack(">iqii", file.read(80)))
    assert entries == [(0, 0, 0, 0), (one, 1000, 0, 0), (two, 2000, 2, 0), (one, 3000, 4, 1)]
    assert found(index, "one") == [3000, 1000]
    assert found(index, "one", 6_000) == [3000]  # 5 s may be anything before 6 s
    assert found(index, "one", 0, 8_000) == [1000]
    index.close()


@example([*"aaaaaaaaaaa", "sync", "drop", "a", "drop"], 0)
@given(
    st.lists(
        st.one_of(
            st.sampled_from("abcdefgh"), st.sampled_from(["sync", "crash", "begin sync", "drop"])
        ),
        max_size=80,
    ),
    st.integers(0, 1000),
)
def test_what_is_put_is_found_the_newest_first_and_what_is_covered_survives(
    steps: list[str], seed: int
) -> None:
    chance = Chance(seed, "power cuts")
    machine = VirtualDisk(chance)
    machine.make_folder("/m")
    index = index_in("/m/index", VirtualQueueDisk(machine, "/m"))
    model: dict[str, list[int]] = defaultdict(list)
    position = kept = 0
    sync = None
    for step in steps:
        if step in ("sync", "begin sync") and sync is None:
            sync = index.begin_sync()
            if step == "begin sync":
                continue  # it is under way for some steps
        if step == "sync":
            assert sync is not None
            sync.run()
            index.end_sync()
            sync = None
        elif step == "crash":
            sync = None
            machine.cut_power(CrashStyle(keep=0.5, torn=0.5, names_in_order=seed % 2 == 0))
            index = index_in("/m/index", VirtualQueueDisk(machine, "/m"))
            position = index.covered
            for positions in model.values():
                positions[:] = [one for one in positions if one < position]
        elif step == "drop":
            kept = max(kept, position - random.Random(position).randrange(100))
            index.drop_before(kept)
        elif len(step) == 1:
            index.put("T", [step], position, position // 10)
            model[step].append(position)
            position += 10
            index.covered = position
            index.flush()
        for key in "abcdefgh":
            hits = [one for one in found(index, key) if kept <= one < position]
            assert hits == sorted(set(hits), reverse=True)
            assert set(hits) == {one for one in model[key] if one >= kept}


def test_files_that_nothing_vouches_for_are_made_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "index")
    index = index_in(folder)
    index.put("T", ["a"], 10, 1)
    index.covered = 20
    index.flush()
    index.close()
    index = index_in(folder)
    assert (index.covered, found(index, "a")) == (0, [])
    index.close()


@pytest.mark.feature("F28")
def test_old_files_go_and_the_last_one_stays(tmp_path: Path) -> None:
    index = index_in(str(tmp_path / "index"))
    for at in range(20):
        index.put("T", ["a"], at, 1)
    index.covered = 20
    index.flush()
    index.drop_before(1000)
    assert len(found(index, "a")) == 20  # nothing is durable: a sync may be under way
    index.begin_sync().run()
    index.end_sync()
    index.drop_before(7)
    assert found(index, "a") == [*range(19, 6, -1)]
    index.drop_before(1000)
    assert found(index, "a") == [*range(19, 13, -1)]
    index.close()


class FullDisk(OsConsumeQueueDisk):
    """Takes no more than the first bytes."""

    room = 1000  # bytes

    def write(self, descriptor: int, data: bytes, at: int) -> int:  # type: ignore[override]
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return len(data)


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    index = index_in(str(tmp_path / "index"), FullDisk(), entries=200)
    for at in range(100):
        index.put("T", ["a"], at, 1)
    with pytest.raises(DiskFailed, match="No space left"):
        index.flush()
    index.close()
