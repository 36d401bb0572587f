"""The background check of the log on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger import open_node
from dledger.entry import Magic
from dledger.node.housekeeping import Housekeeper
from dledger.state_machine import LogOnly
from dledger.store.disk import OsDisk
from dledger.store.disk_room import unwatched_room
from dledger.store.open_store import open_store
from dledger.store.scrubber import Scrubber
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.running_members import lone

CONFIG = StoreConfig(
    segment_bytes=4096, index_segment_bytes=1024, max_body_bytes=1000, spare_segments=0
)
ENTRIES = 200
STEP_BYTES = 512


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SegmentStore]:
    """A log of several files."""
    opened = open_store(OsDisk(), str(tmp_path), CONFIG, "g", "n0")
    for number in range(ENTRIES):
        opened.append(1 + number // 90, Magic.NORMAL, [b"entry-%d" % number])
    yield opened
    opened.close()


def damage(folder: Path, store: SegmentStore, index: int) -> None:
    """Let one byte of an entry's body rot."""
    header = store.header_at(index)
    files = sorted((folder / "dledger-n0" / "data").iterdir())
    path = files[header.pos // CONFIG.segment_bytes]
    with path.open("r+b") as file:
        file.seek(header.pos % CONFIG.segment_bytes + 50)
        file.write(b"?")


def one_pass(scrubber: Scrubber, committed: int) -> int:
    """Step until the pass ends; the bytes that were checked."""
    total = 0
    while checked := scrubber.step(committed, STEP_BYTES):
        assert checked <= STEP_BYTES
        total += checked
    return total


def test_a_pass_reads_every_committed_entry_once(store: SegmentStore) -> None:
    scrubber = Scrubber(store)
    whole = sum(store.header_at(index).size for index in range(151))
    assert one_pass(scrubber, 150) == whole
    assert one_pass(scrubber, 150) == whole
    assert scrubber.status == (-1, 2, None)


@pytest.mark.parametrize("index", [0, 77, 150])
def test_damage_is_found_and_named(store: SegmentStore, tmp_path: Path, index: int) -> None:
    scrubber = Scrubber(store)
    damage(tmp_path, store, index)
    one_pass(scrubber, 150)
    assert scrubber.status.damage == (f"entry {index} of a batch: the body does not match its CRC")


def test_what_is_not_committed_is_not_looked_at(store: SegmentStore, tmp_path: Path) -> None:
    scrubber = Scrubber(store)
    damage(tmp_path, store, 151)
    one_pass(scrubber, 150)
    assert scrubber.status.damage is None


def test_a_period_takes_the_scrubber_once_through_the_log(
    store: SegmentStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = unwatched_room(OsDisk())
    housekeeper = Housekeeper(store, lambda: 150, 3600, lambda work: work()(), 0.0, room)
    damage(tmp_path, store, 20)
    while housekeeper.next_look_at < 3.5 * 3600:
        housekeeper.look(housekeeper.next_look_at)
    assert 1 <= housekeeper.scrub.passes <= 4
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "dledger repair" in caplog.text


async def test_a_node_tells_what_the_scrubber_found(tmp_path: Path) -> None:
    async with open_node(lone(tmp_path), LogOnly()) as node:
        status = node.status()
    assert (status.scrub_passes, status.scrub_damage) == (0, None)
