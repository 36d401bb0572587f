"""A log that loses its beginning: on disk, while a sync runs, after crashes half-way."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import Magic, decode_entries
from dledger.errors import DiskFailed, InvariantBroken
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.scan import scan_folder
from dledger.store.segment import file_name
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig

CONFIG = StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=500)


class Disk(OsDisk):
    """Removes nothing while it is told not to."""

    def __init__(self) -> None:
        self.refuses = False

    def remove(self, path: str) -> None:
        if self.refuses:
            raise OSError(5, "no", path)
        super().remove(path)


def reopen(base: Path, disk: OsDisk | None = None) -> SegmentStore:
    return open_store(disk or OsDisk(), str(base), CONFIG, "g", "n0")


def build(base: Path, disk: OsDisk | None = None, count: int = 80) -> SegmentStore:
    """An open store whose entries are committed and durable."""
    store = reopen(base, disk)
    for term in (1, 2, 3, 4):
        store.append(term, Magic.NORMAL, [b"entry %d " % i * 9 for i in range(count // 4)])
    store.begin_sync(HardState(4, "n0")).run()
    store.note_committed(count - 1)
    return store


def names(base: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (base / "dledger-n0" / kind).iterdir())


def bodies(store: SegmentStore) -> list[bytes]:
    return [
        decode_entries(store.read(i, i, 0))[0].body
        for i in range(store.first_index, store.last_index + 1)
    ]


def test_a_restart_finds_the_log_where_it_was_cut(tmp_path: Path) -> None:
    store = build(tmp_path)
    store.discard_before(70)
    first, pos = store.first_index, store.header_at(store.first_index).pos
    kept, runs, chain = bodies(store), store.term_runs(), store.chain_at(first - 1)
    assert store.record_due
    store.begin_sync(None).run()
    assert not store.record_due
    files = store.take_discarded()
    assert files is not None
    files.remove()
    assert store.take_discarded() is None
    store._files.close()
    assert names(tmp_path, "data")[0] == file_name(pos)
    assert names(tmp_path, "index")[0] == file_name(first * 32 // 320 * 320)
    again = reopen(tmp_path)
    assert (again.first_index, again.begin_pos, bodies(again)) == (first, pos, kept)
    assert (again.term_runs(), again.chain_at(first - 1)) == (runs, chain)
    assert again.term_at(first - 1) == 4
    assert again.recovered.entries_checked <= len(kept)
    again.close()


def test_files_stay_until_the_new_beginning_is_recorded(tmp_path: Path) -> None:
    store = build(tmp_path)
    before = names(tmp_path, "data")
    work = store.begin_sync(None)
    store.discard_before(70)
    assert not store.record_due  # one sync at a time
    assert store.take_discarded() is None
    work.run()
    assert store.record_due
    assert store.take_discarded() is None
    assert names(tmp_path, "data") == before
    store.begin_sync(None).run()
    files = store.take_discarded()
    assert files is not None
    assert len(files.paths) > 10
    store.close()


def test_a_beginning_that_was_not_recorded_comes_back_at_the_start(tmp_path: Path) -> None:
    store = build(tmp_path)
    kept = bodies(store)
    store.discard_before(70)
    store._files.close()
    again = reopen(tmp_path)
    assert (again.first_index, bodies(again)) == (0, kept)
    again.close()


def test_any_leftover_of_an_interrupted_removal_is_removed_at_the_start(tmp_path: Path) -> None:
    for number, keep in enumerate(itertools.product((True, False), repeat=4)):
        base = tmp_path / str(number)
        store = build(base)
        store.discard_before(30)
        store.begin_sync(None).run()
        kept, first = bodies(store), store.first_index
        files = store.take_discarded()
        assert files is not None
        data = [path for path in files.paths if "/data/" in path]
        for at, path in enumerate(files.paths):
            if not keep[at % 4]:
                OsDisk().remove(path)
        store._files.close()
        scan = scan_folder(str(base))
        assert next(place.header.index for place in scan.entries()) == first
        assert scan.verify() == []
        again = reopen(base)
        assert (again.first_index, bodies(again)) == (first, kept)
        assert not set(data) & {f"{base}/dledger-n0/data/{n}" for n in names(base, "data")}
        again.close()


def test_files_that_cannot_be_removed_do_not_end_the_store(tmp_path: Path) -> None:
    disk = Disk()
    store = build(tmp_path, disk)
    store.discard_before(70)
    store.begin_sync(None).run()
    files = store.take_discarded()
    assert files is not None
    disk.refuses = True
    with pytest.raises(DiskFailed) as failed:
        files.remove()
    assert failed.value.path == files.paths[0]
    store.append(5, Magic.NORMAL, [b"goes on"])
    disk.refuses = False
    store.close()
    again = reopen(tmp_path)
    assert names(tmp_path, "data")[0] == file_name(again.begin_pos)
    again.close()


def test_what_is_not_durable_is_not_discarded(tmp_path: Path) -> None:
    store = build(tmp_path)
    store.append(5, Magic.NORMAL, [b"x" * 300] * 9)
    store.note_committed(store.last_index)
    with pytest.raises(InvariantBroken):
        store.discard_before(85)
    store.begin_sync(None).run()
    store.discard_before(85)
    assert 80 <= store.first_index <= 85
    store.close()


def test_a_lost_index_is_rebuilt_from_the_new_beginning(tmp_path: Path) -> None:
    store = build(tmp_path)
    store.discard_before(40)
    store.close()
    for name in names(tmp_path, "index"):
        (tmp_path / "dledger-n0" / "index" / name).unlink()
    again = reopen(tmp_path)
    assert bodies(again) == [b"entry %d " % (i % 20) * 9 for i in range(again.first_index, 80)]
    assert names(tmp_path, "index")[0] == file_name(again.first_index * 32 // 320 * 320)
    again.close()
