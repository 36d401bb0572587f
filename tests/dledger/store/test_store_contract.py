"""What every LogStore does, over files of several lengths and in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.entry import (
    HEADER_BYTES,
    LARGEST_BODY_BYTES,
    Entry,
    Magic,
    PositionedBody,
    decode_entries,
)
from dledger.errors import EntryTooLarge, InvariantBroken, OutsideLog
from dledger.store.batch import verify_batch
from dledger.store.disk import OsDisk
from dledger.store.log_store import LogStore
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from dledger.wire.frame import FrameDecoder, encode_frame
from tests.dledger.store.memory_store import MemoryStore

SIZES = {
    "256": StoreConfig(segment_bytes=256, index_segment_bytes=96, max_body_bytes=100),
    "1024": StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=900),
    "64Mi": StoreConfig(max_body_bytes=4096),
}


class Maker:
    """Makes stores of one kind and closes them."""

    def __init__(self, kind: str, size: str, folder: Path, closing: contextlib.ExitStack) -> None:
        self.kind, self.config = kind, SIZES[size]
        self._folder, self._closing, self._made = folder, closing, 0

    def __call__(self) -> LogStore:
        self._made += 1
        store: LogStore
        if self.kind == "memory":
            store = MemoryStore(self.config)
        else:
            store = open_store(OsDisk(), str(self._folder), self.config, "group", f"n{self._made}")
        self._closing.callback(store.close)
        return store


@pytest.fixture(params=["files-256", "files-1024", "files-64Mi", "memory-256", "memory-64Mi"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    kind, size = request.param.split("-")
    with contextlib.ExitStack() as closing:
        yield Maker(kind, size, tmp_path, closing)


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"body %d %s" % (i, b"x" * (i * 7 % 60)) for i in range(start, start + count)]


def everything(store: LogStore, max_bytes: int = 1 << 20) -> list[Entry]:
    found: list[Entry] = []
    index = store.first_index
    while index <= store.last_index:
        found += decode_entries(store.read(index, store.last_index, max_bytes))
        index = found[-1].index + 1
    return found


def copy(source: LogStore, target: LogStore, max_bytes: int = 300) -> None:
    while target.last_index < source.last_index:
        first = target.last_index + 1
        raw = source.read(first, source.last_index, max_bytes)
        facts = verify_batch(raw, first, target.chain_at(first - 1), target.last_term)
        target.write_batch(raw, facts)


def test_a_new_log_is_empty(make: Maker) -> None:
    store = make()
    assert (store.first_index, store.last_index, store.last_term) == (0, -1, -1)
    assert (store.end_pos, store.epoch, store.hard_state) == (0, 0, HardState())
    assert store.term_runs() == []
    assert store.chain_at(-1) == 0


def test_what_was_appended_is_read_back(make: Maker) -> None:
    store = make()
    wanted = bodies(40)
    assert store.append(1, Magic.NORMAL, wanted[:1])[:2] == (0, 0)
    assert store.append(1, Magic.NORMAL, wanted[1:25])[:2] == (1, 24)
    assert store.append(4, Magic.CONFIGURATION, wanted[25:])[:2] == (25, 39)
    found = everything(store)
    assert [entry.body for entry in found] == wanted
    assert [entry.index for entry in found] == list(range(40))
    assert [entry.term for entry in found] == [1] * 25 + [4] * 15
    assert found[-1].magic == Magic.CONFIGURATION
    assert found[-1].pos + HEADER_BYTES + len(wanted[-1]) == store.end_pos


def test_positions_grow_and_no_entry_crosses_a_segment(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, bodies(60))
    segment = make.config.segment_bytes
    previous = None
    for entry in everything(store):
        end = entry.pos + HEADER_BYTES + len(entry.body)
        assert entry.pos // segment == (end + 7) // segment
        if previous is not None and previous != entry.pos:
            assert entry.pos % segment == 0
            assert previous + (end - entry.pos) + 8 > entry.pos
        previous = end


def test_a_positioned_body_knows_where_it_lies(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, bodies(5))
    store.append(1, Magic.NORMAL, [PositionedBody(b"head", b"tail"), b"plain"] * 4)
    for entry in everything(store)[5::2]:
        assert entry.body == b"head" + entry.body_pos.to_bytes(8, "big") + b"tail"
        assert store.read_bytes(entry.body_pos, len(entry.body)) == entry.body


def test_empty_bodies_are_entries(make: Maker) -> None:
    store = make()
    store.append(2, Magic.NOOP, [b""])
    store.append(2, Magic.NORMAL, [b"", b"a", b""])
    assert [entry.body for entry in everything(store)] == [b"", b"", b"a", b""]


def test_a_body_beyond_the_limit_is_refused_and_nothing_of_its_batch_is_kept(make: Maker) -> None:
    store = make()
    limit = make.config.max_body_bytes
    store.append(1, Magic.NORMAL, [b"x" * limit])
    end = store.end_pos
    with pytest.raises(EntryTooLarge) as refused:
        store.append(1, Magic.NORMAL, [b"fine", b"x" * (limit + 1)])
    assert (refused.value.body_bytes, refused.value.limit_bytes) == (limit + 1, limit)
    with pytest.raises(EntryTooLarge):
        store.append(1, Magic.NORMAL, [PositionedBody(b"x" * limit, b"")])
    assert (store.last_index, store.end_pos) == (0, end)
    assert store.append(1, Magic.NORMAL, [b"next"])[:2] == (1, 1)


def test_the_largest_body_is_stored_pushed_and_found_again(tmp_path: Path) -> None:
    config = StoreConfig(max_body_bytes=LARGEST_BODY_BYTES, spare_segments=0)
    body = bytes(LARGEST_BODY_BYTES)
    with contextlib.closing(open_store(OsDisk(), str(tmp_path), config, "group", "n0")) as store:
        store.append(1, Magic.NORMAL, [b"before", body, b"behind"])
        raw = store.read_bytes(0, store.end_pos)
        facts = verify_batch(raw, 0, None, 0)
        assert facts.last_index == 2
        frame = encode_frame([1], raw[HEADER_BYTES + len(b"before") : -HEADER_BYTES - 6])
        ((_header, payload),) = FrameDecoder().feed(frame)
        assert len(payload) == HEADER_BYTES + LARGEST_BODY_BYTES
    with contextlib.closing(open_store(OsDisk(), str(tmp_path), config, "group", "n0")) as store:
        assert [len(one.body) for one in everything(store, 1 << 23)] == [6, len(body), 6]


def test_an_append_of_nothing_or_of_an_old_term_is_a_bug(make: Maker) -> None:
    store = make()
    store.append(3, Magic.NORMAL, [b"a"])
    with pytest.raises(InvariantBroken):
        store.append(3, Magic.NORMAL, [])
    with pytest.raises(InvariantBroken):
        store.append(2, Magic.NORMAL, [b"b"])
    assert store.last_index == 0


def test_a_read_gives_at_least_one_entry_and_at_most_the_bytes_asked_for(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, [b"x" * 50] * 10)
    assert len(decode_entries(store.read(3, 9, 0))) == 1
    assert len(decode_entries(store.read(3, 9, 98))) == 1
    assert len(store.read(0, 9, 1 << 20)) <= make.config.segment_bytes
    for max_bytes in (98, 195, 196, 197, 500, 981):
        raw = store.read(0, 9, max_bytes)
        assert len(raw) % 98 == 0
        assert len(raw) <= max_bytes
    assert decode_entries(store.read(4, 5, 1 << 20))[0].index == 4
    assert decode_entries(store.read(5, 5, 1 << 20))[-1].index == 5
    assert decode_entries(store.read(9, 10**9, 1 << 20))[-1].index == 9


def test_reads_outside_of_the_log_are_refused(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, [b"x" * 50] * 3)
    for index in (-1, 3, 10**12):
        with pytest.raises(OutsideLog):
            store.read(index, index, 100)
        with pytest.raises(OutsideLog):
            store.header_at(index)
    for pos, size in ((-1, 5), (store.end_pos - 4, 5), (store.end_pos, 1), (0, -1), (10**15, 1)):
        with pytest.raises(OutsideLog):
            store.read_bytes(pos, size)
    assert store.read_bytes(store.end_pos - 5, 5) == b"xxxxx"
    assert store.term_at(3) == -1
    assert store.term_at(2) == 1


def test_headers_chains_and_terms_agree_with_the_bytes(make: Maker) -> None:
    store = make()
    for term in (1, 1, 2, 5):
        store.append(term, Magic.NORMAL, bodies(6))
    for index in range(24):
        header = store.header_at(index)
        assert header.index == index
        assert header.term == store.term_at(index) == (1, 1, 2, 5)[index // 6]
        assert header.chain_crc == store.chain_at(index) != 0
    assert store.term_runs() == [TermRun(1, 0), TermRun(2, 12), TermRun(5, 18)]
    view = store.view()
    assert view.last_index == 23
    assert view.term_at(13) == 2
    view.extend(9, 4)
    assert (store.last_index, store.last_term) == (23, 5)


def test_a_follower_ends_up_with_the_same_bytes(make: Maker) -> None:
    leader, follower = make(), make()
    leader.append(1, Magic.NORMAL, bodies(30))
    copy(leader, follower)
    leader.append(2, Magic.NORMAL, [PositionedBody(b"a", b"b")] * 9)
    copy(leader, follower)
    assert everything(follower) == everything(leader)
    assert follower.end_pos == leader.end_pos
    assert follower.chain_at(38) == leader.chain_at(38)
    assert follower.term_runs() == leader.term_runs()


def test_a_batch_that_does_not_follow_the_log_is_a_bug(make: Maker) -> None:
    leader, follower = make(), make()
    leader.append(1, Magic.NORMAL, [b"x" * 30] * 2)
    leader.append(3, Magic.NORMAL, [b"x" * 30])
    second = leader.read(1, 1, 1)
    facts = verify_batch(second, 1, leader.chain_at(0), 1)
    with pytest.raises(InvariantBroken):
        follower.write_batch(second, facts)
    follower.append(1, Magic.NORMAL, [b"longer than the other first"])
    with pytest.raises(InvariantBroken):
        follower.write_batch(second, facts)
    assert follower.last_index == 0


def test_truncation_drops_the_tail_for_good(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, bodies(20))
    kept = everything(store)[:8]
    store.append(2, Magic.NORMAL, bodies(5))
    store.truncate_after(7)
    assert (store.last_index, store.last_term, store.epoch) == (7, 1, 1)
    assert everything(store) == kept
    assert store.end_pos == kept[-1].pos + HEADER_BYTES + len(kept[-1].body)
    store.append(3, Magic.NORMAL, [b"new"])
    assert everything(store)[:8] == kept
    assert store.term_runs() == [TermRun(1, 0), TermRun(3, 8)]
    store.truncate_after(8)
    assert store.epoch == 1
    store.truncate_after(-1)
    assert (store.last_index, store.end_pos, store.epoch) == (-1, 0, 2)
    assert store.append(4, Magic.NORMAL, bodies(12))[:2] == (0, 11)
    assert [entry.body for entry in everything(store)] == bodies(12)


def test_committed_entries_are_never_truncated(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, bodies(6))
    store.note_committed(3)
    with pytest.raises(InvariantBroken):
        store.truncate_after(2)
    store.truncate_after(3)
    assert store.last_index == 3


def test_a_sync_reports_what_it_made_durable(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, bodies(3))
    work = store.begin_sync(HardState(1, "n1"))
    store.append(1, Magic.NORMAL, bodies(3))
    with pytest.raises(InvariantBroken):
        store.begin_sync(None)
    assert store.hard_state == HardState()
    work.run()
    assert (work.index, work.epoch, work.hard_state) == (2, 0, HardState(1, "n1"))
    assert store.hard_state[:2] == (1, "n1")
    with pytest.raises(InvariantBroken):
        work.run()
    store.truncate_after(4)
    after = store.begin_sync(None)
    after.run()
    assert (after.index, after.epoch, after.hard_state) == (4, 1, None)


def test_nothing_is_done_after_close(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, bodies(3))
    store.close()
    store.close()
    with pytest.raises(InvariantBroken):
        store.append(1, Magic.NORMAL, bodies(1))
    with pytest.raises(InvariantBroken):
        store.read(0, 0, 1)


def discardable(make: Maker, count: int = 60) -> LogStore:
    """A store of two terms whose entries are all committed and durable."""
    store = make()
    store.append(1, Magic.NORMAL, bodies(count // 2))
    store.append(3, Magic.NORMAL, bodies(count - count // 2, count // 2))
    store.begin_sync(None).run()
    store.note_committed(count - 1)
    return store


def test_a_log_loses_its_beginning_by_whole_segments(make: Maker) -> None:
    store = discardable(make)
    before, chains = everything(store), [store.chain_at(i) for i in range(60)]
    segment = make.config.segment_bytes
    for index in (5, 29, 30, 31, 44, 59):
        store.discard_before(index)
        first = store.first_index
        assert before[first].pos == before[index].pos // segment * segment
        assert everything(store) == before[first:]
        assert store.end_pos == before[-1].pos + HEADER_BYTES + len(before[-1].body)
        assert store.chain_at(first - 1) == (chains[first - 1] if first else 0)
        assert store.term_at(first - 1) == ((1 if first <= 30 else 3) if first else -1)
        assert store.term_at(first - 2) == (-1 if first > 0 else store.term_at(first - 2))
        assert store.term_runs()[0] == TermRun(1 if first < 30 else 3, first)
        view = store.view()
        assert (view.before_begin, view.before_begin_term) == (first - 1, store.term_at(first - 1))
    if segment < 4096:
        assert store.first_index > 50


def test_what_was_discarded_is_outside_of_the_log(make: Maker) -> None:
    store = discardable(make)
    before = everything(store)
    store.discard_before(50)
    first = store.first_index
    if first == 0:
        return  # one segment holds it all
    for call in (
        lambda: store.read(first - 1, 59, 100),
        lambda: store.header_at(first - 2),
        lambda: store.chain_at(first - 2),
    ):
        with pytest.raises(OutsideLog) as outside:
            call()
        assert (outside.value.first, outside.value.last) == (first, 59)
    with pytest.raises(OutsideLog):
        store.read_bytes(before[first - 1].pos, 4)
    assert store.read_bytes(before[first].pos, 4) == b"\0\0\0\1"


def test_only_committed_entries_are_discarded(make: Maker) -> None:
    store = make()
    store.append(1, Magic.NORMAL, bodies(60))
    store.begin_sync(None).run()
    store.note_committed(40)
    with pytest.raises(InvariantBroken):
        store.discard_before(41)
    assert store.first_index == 0
    store.discard_before(40)
    first = store.first_index
    store.truncate_after(40)
    assert (store.first_index, store.last_index) == (first, 40)
    store.discard_before(first)
    store.discard_before(-1)
    assert store.first_index == first


def test_a_log_whose_beginning_is_gone_goes_on_like_a_whole_one(make: Maker) -> None:
    whole, cut = discardable(make), make()
    copy(whole, cut)
    cut.begin_sync(None).run()
    cut.note_committed(59)
    cut.discard_before(55)
    for leader, follower in ((cut, whole), (whole, cut)):
        leader.append(leader.last_term + 1, Magic.NORMAL, bodies(25))
        copy(leader, follower)
    assert everything(cut) == everything(whole)[cut.first_index :]
    assert (cut.end_pos, cut.last_term) == (whole.end_pos, whole.last_term)
    cut.truncate_after(70)
    whole.truncate_after(70)
    assert (cut.end_pos, cut.chain_at(70)) == (whole.end_pos, whole.chain_at(70))
