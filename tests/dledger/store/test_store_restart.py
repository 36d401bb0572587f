"""A log that is dropped for a snapshot's sake and begun anew: contract, files, and power cuts."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from dledger.core.hard_state import HardState
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import Entry, Magic, decode_entries
from dledger.errors import InvariantBroken, OutsideLog
from dledger.store.batch import verify_batch
from dledger.store.disk import OsDisk
from dledger.store.log_store import LogStore
from dledger.store.open_store import open_store
from dledger.store.scan import scan_folder
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.store.memory_store import MemoryStore
from tests.dledger.store.test_store_power_cut import LosingDisk, PowerCut

CONFIG = StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=500)


def fill(store: LogStore, terms: tuple[int, ...], each: int, mark: bytes = b"entry") -> None:
    for term in terms:
        store.append(term, Magic.NORMAL, [mark + b" %d " % i * 9 for i in range(each)])
    store.begin_sync(HardState(terms[-1], "n0")).run()


def leader() -> MemoryStore:
    store = MemoryStore(CONFIG)
    fill(store, (1, 2, 3, 4), 20)
    store.note_committed(79)
    return store


def entries(store: LogStore) -> list[Entry]:
    found: list[Entry] = []
    first = store.first_index
    while first <= store.last_index:
        found += decode_entries(store.read(first, store.last_index, 1 << 20))
        first = found[-1].index + 1
    return found


def send_rest(source: LogStore, target: LogStore) -> None:
    """As appends do: from the target's end to the source's."""
    while target.last_index < source.last_index:
        first = target.last_index + 1
        raw = source.read(first, source.last_index, 300)
        chain = target.chain_at(first - 1)
        target.write_batch(raw, verify_batch(raw, first, chain, target.last_term))


def reopen(base: Path) -> SegmentStore:
    return open_store(OsDisk(), str(base), CONFIG, "g", "n1")


def names(base: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (base / "dledger-n1" / kind).iterdir())


def test_a_snapshots_log_begins_with_the_segment_of_its_last_entry() -> None:
    source = leader()
    for index in (0, 5, 40, 79):
        begin = source.begin_for(index)
        assert begin.pos % CONFIG.segment_bytes == 0
        assert begin.pos <= source.header_at(index).pos < begin.pos + CONFIG.segment_bytes
        first = source.header_at(begin.before_index + 1)
        assert first.pos == begin.pos
        assert begin.before_term == source.term_at(begin.before_index)
        assert begin.before_chain == source.chain_at(begin.before_index)


def test_both_stores_say_alike_where_a_snapshots_log_begins(tmp_path: Path) -> None:
    memory, files = leader(), reopen(tmp_path)
    fill(files, (1, 2, 3, 4), 20)
    files.note_committed(79)
    stores: list[LogStore] = [memory, files]
    for store in stores:
        store.discard_before(50)
    before = memory.first_index - 1
    assert before > 0
    for index in range(before, 80):
        assert memory.begin_for(index) == files.begin_for(index)
    assert files.begin_for(before) == LogBegin(
        before, files.term_at(before), files.chain_at(before), files.begin_pos
    )
    for store in stores:
        with pytest.raises(OutsideLog):
            store.begin_for(before - 1)
    files.close()


@pytest.mark.parametrize("kind", ["memory", "files"])
@pytest.mark.parametrize("had", [0, 7, 200])
def test_a_log_that_begins_anew_ends_up_with_the_leaders_bytes(
    kind: str, had: int, tmp_path: Path
) -> None:
    source = leader()
    store: LogStore = MemoryStore(CONFIG) if kind == "memory" else reopen(tmp_path)
    if had:
        fill(store, (1,), had, b"another history")
    epoch, begin = store.epoch, source.begin_for(60)
    store.restart(begin)
    assert (store.first_index, store.last_index) == (begin.before_index + 1, begin.before_index)
    assert (store.end_pos, store.last_term) == (begin.pos, begin.before_term)
    assert store.epoch == epoch + 1
    view = store.view()
    assert (view.last_index, view.before_begin) == (begin.before_index, begin.before_index)
    assert (view.last_term, view.term_at(begin.before_index)) == (begin.before_term,) * 2
    send_rest(source, store)
    store.begin_sync(None).run()
    assert entries(store) == entries(source)[begin.before_index + 1 :]
    assert store.chain_at(79) == source.chain_at(79)
    if isinstance(store, SegmentStore):
        files = store.take_discarded()
        assert (files is not None) == bool(had)
        if files is not None:
            files.remove()
        assert store.take_discarded() is None
        assert names(tmp_path, "data")[0] == f"{begin.pos:020d}"
        store.close()
        store = reopen(tmp_path)
        assert entries(store) == entries(source)[begin.before_index + 1 :]
        assert scan_folder(str(tmp_path)).verify() == []
    store.close()


def test_a_log_that_begins_anew_is_there_after_a_restart_though_still_empty(
    tmp_path: Path,
) -> None:
    source, store = leader(), reopen(tmp_path)
    fill(store, (1,), 30, b"other")
    begin = source.begin_for(60)
    store.restart(begin)
    store._files.close()
    scan = scan_folder(str(tmp_path))
    assert scan.verify() == []
    assert list(scan.entries()) == []
    again = reopen(tmp_path)
    assert (again.first_index, again.last_index) == (begin.before_index + 1, begin.before_index)
    assert again.hard_state.committed == begin.before_index
    assert again.hard_state.term >= begin.before_term
    send_rest(source, again)
    assert entries(again) == entries(source)[begin.before_index + 1 :]
    again.close()


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_a_log_that_holds_the_beginning_is_not_dropped(kind: str, tmp_path: Path) -> None:
    source = leader()
    store: LogStore = MemoryStore(CONFIG) if kind == "memory" else reopen(tmp_path)
    send_rest(source, store)
    store.begin_sync(HardState(4)).run()
    with pytest.raises(InvariantBroken, match="restart after entry"):
        store.restart(source.begin_for(60))
    assert entries(store) == entries(source)
    store.close()


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_a_log_is_not_dropped_behind_what_is_committed_or_while_a_sync_runs(
    kind: str, tmp_path: Path
) -> None:
    source = leader()
    store: LogStore = MemoryStore(CONFIG) if kind == "memory" else reopen(tmp_path)
    fill(store, (1,), 80, b"other")
    begin = source.begin_for(60)
    work = store.begin_sync(HardState(5))
    with pytest.raises(InvariantBroken, match="while a sync runs"):
        store.restart(begin)
    work.run()
    store.note_committed(begin.before_index)
    with pytest.raises(InvariantBroken, match="committed is"):
        store.restart(begin)
    store.close()


@pytest.mark.parametrize("block", range(8))
def test_whatever_step_the_power_cuts_there_is_the_old_log_or_the_new_one(block: int) -> None:
    source = leader()
    outcomes = set()
    for seed in range(block * 25, block * 25 + 25):
        outcomes.add(one_restart(Random(seed), source))
    assert outcomes == {"old", "new"}


def one_restart(random: Random, source: MemoryStore) -> str:
    """A member with some history is given a snapshot's log; the power goes at some step."""
    disk = LosingDisk(random)
    config = StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=500)
    begin = source.begin_for(random.choice((40, 60, 79)))
    store = open_store(disk, "/base", config, "g", "n1")
    shared = random.choice((0, 0, 1, 10))  # entries that are the leader's
    while store.last_index < shared - 1:
        raw = source.read(store.last_index + 1, shared - 1, 1)
        first = store.last_index + 1
        chain = store.chain_at(first - 1)
        store.write_batch(raw, verify_batch(raw, first, chain, store.last_term))
    if random.random() < 0.8:
        fill(store, (1,), random.choice((3, 60, 150)), b"mine")
    else:
        store.begin_sync(HardState(1)).run()
    store.note_committed(shared - 1)
    before = entries(store)
    disk.steps_left = random.randint(0, 25)
    try:
        store.restart(begin)
        if (files := store.take_discarded()) is not None:
            files.remove()
        send_rest(source, store)
        store.begin_sync(HardState(4)).run()
    except PowerCut:
        pass  # the machine is off, and the process with it
    disk.cut_power()
    again = open_store(disk, "/base", config, "g", "n1")
    if again.first_index == 0:
        kept = entries(again)
        # What contradicts the new log may be gone, and nothing else.
        assert kept == before[: len(kept)]
        assert len(kept) >= min(len(before), shared)
        return "old"
    assert again.first_index == begin.before_index + 1
    assert entries(again) == entries(source)[again.first_index : again.last_index + 1]
    send_rest(source, again)
    assert entries(again) == entries(source)[again.first_index :]
    return "new"
