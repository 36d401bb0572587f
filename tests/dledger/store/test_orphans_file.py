"""The record of committed entries that a group lost, and what a start makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.config import NodeConfig
from dledger.core.hard_state import HardState
from dledger.core.orphans import Orphans
from dledger.entry import Magic
from dledger.errors import LogCorrupt
from dledger.snapshots.restoring import open_and_restore
from dledger.store.disk import Disk, OsDisk
from dledger.store.generation import Generation
from dledger.store.generation_file import FILE_NAME as GENERATION
from dledger.store.generation_file import GenerationFile
from dledger.store.open_store import open_store
from dledger.store.orphans_file import FILE_NAME, OrphansFile
from dledger.store.segment_store import SegmentStore
from dledger.store.set_aside import set_aside
from dledger.store.store_config import StoreConfig
from tests.dledger.node.test_node import Register

LOST = Orphans(2, 5)


def opened(folder: Path) -> SegmentStore:
    return open_store(OsDisk(), str(folder), StoreConfig(), "g", "n0")


def test_the_record_outlives_a_start_and_can_be_taken_back(tmp_path: Path) -> None:
    for orphans in (LOST, Orphans(1, 7), None, None):
        store = opened(tmp_path)
        store.set_orphans(orphans)
        store.close()
        store = opened(tmp_path)
        assert store.orphans == orphans
        store.close()


def test_a_start_counts_them_as_committed_whatever_the_hard_state_says(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append(1, Magic.NORMAL, [b"entry"] * 8)
    store.begin_sync(HardState(1, None, 0)).run()
    store.set_orphans(LOST)
    store.close()
    config = NodeConfig(group="g", node_id="n0", peers={"n0": "127.0.0.1:1"}, data_dir=tmp_path)
    found = open_and_restore(OsDisk(), config, Register())
    assert found.hard_state.committed == LOST.last
    found.store.close()


def test_a_folder_that_is_set_aside_takes_the_record_with_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append(1, Magic.NORMAL, [b"entry"] * 8)
    store.begin_sync(HardState(1, None, 0)).run()
    store.set_orphans(LOST)
    store.close()
    aside = Path(set_aside(str(tmp_path)))
    assert (aside / FILE_NAME).read_text().splitlines()[0] == "orphans 2 5"
    store = opened(tmp_path)
    assert store.orphans is None
    store.close()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"orphans", b"orphans 1", b"orphans -1 4\n", b"\xff" * 9),
        *(b"orphans 1 4", b"orphans 1 4\n\n", b"orphans 5 4\n"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(LogCorrupt):
        OrphansFile(OsDisk(), str(tmp_path))


def test_a_record_of_a_version_before_sums_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"orphans 2 5\n")
    assert OrphansFile(OsDisk(), str(tmp_path)).orphans == LOST


def test_a_flipped_bit_is_never_another_record(tmp_path: Path) -> None:
    OrphansFile(OsDisk(), str(tmp_path)).set(LOST)
    GenerationFile(OsDisk(), str(tmp_path)).set(Generation(3, "0123456789abcdef"))
    kinds: dict[str, Callable[[Disk, str], object]] = {
        FILE_NAME: OrphansFile,
        GENERATION: GenerationFile,
    }
    for name, kind in kinds.items():
        path = tmp_path / name
        whole = path.read_bytes()
        for place in range(len(whole)):
            for bit in range(8):
                changed = bytearray(whole)
                changed[place] ^= 1 << bit
                path.write_bytes(changed)
                with pytest.raises(LogCorrupt):
                    kind(OsDisk(), str(tmp_path))
