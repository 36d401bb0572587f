"""The two slots: torn writes, the newer one wins, the durable one is never overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.errors import HardStateLost, InvariantBroken
from dledger.store.disk import OsDisk
from dledger.store.hard_state_file import (
    FILE_BYTES,
    FILE_NAME,
    SLOT_BYTES,
    SLOT_DISTANCE_BYTES,
    HardStateFile,
    StoreRecord,
    decode_record,
    encode_record,
    newest_record,
)
from dledger.store.java_term_file import JavaTerm, parse_java_term
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk

RECORD = StoreRecord(
    group="gruppe-ü",
    node_id="n0",
    segment_bytes=4096,
    index_segment_bytes=320,
    term=2**40,
    voted_for="n2",
    committed=77,
    unchecked_through=5,
    before_begin=3,
    before_begin_term=1,
    before_begin_chain=2**32 - 1,
    scan_pos=8192,
    scan_index=40,
    begin_pos=4096,
)
CONFIG = StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=500)


def two_slots(first: bytes, second: bytes) -> bytes:
    return first.ljust(SLOT_DISTANCE_BYTES, b"\0") + second


def test_a_record_survives_encoding() -> None:
    slot = encode_record(RECORD, 9)
    assert len(slot) == SLOT_BYTES
    assert decode_record(slot) == (RECORD, 9)
    bare = RECORD._replace(voted_for=None)
    assert decode_record(encode_record(bare, 1)) == (bare, 1)


def test_the_longest_names_fit() -> None:
    longest = RECORD._replace(group="g" * 127, node_id="n" * 127, voted_for="v" * 127)
    slot = encode_record(longest, 1)
    assert len(slot) == SLOT_BYTES
    assert decode_record(slot) == (longest, 1)


def test_any_flipped_byte_makes_a_slot_invalid() -> None:
    slot = encode_record(RECORD, 9)
    for at in range(SLOT_BYTES):
        broken = slot[:at] + bytes((slot[at] ^ 1,)) + slot[at + 1 :]
        assert decode_record(broken) is None


def test_a_slot_torn_at_any_byte_leaves_the_other_one() -> None:
    older, newer = RECORD, RECORD._replace(term=RECORD.term + 1, voted_for=None)
    before = encode_record(older._replace(term=1), 7)
    first, second = encode_record(older, 8), encode_record(newer, 9)
    assert newest_record(two_slots(first, second)) == (newer, 9, 1)
    assert newest_record(two_slots(second, first)) == (newer, 9, 0)
    for old in (before, bytes(SLOT_BYTES)):
        for torn_at in range(SLOT_BYTES):
            torn = second[:torn_at] + old[torn_at:]
            if torn == second:
                continue
            assert newest_record(two_slots(first, torn)) == (older, 8, 0)
            assert newest_record(two_slots(torn, first)) == (older, 8, 1)


def test_no_record_in_an_empty_or_short_file() -> None:
    assert newest_record(b"") is None
    assert newest_record(bytes(FILE_BYTES)) is None
    assert newest_record(encode_record(RECORD, 1)[:511]) is None


def test_a_write_without_a_sync_never_touches_the_durable_slot(tmp_path: Path) -> None:
    file = HardStateFile.create(OsDisk(), str(tmp_path), RECORD)
    path = tmp_path / FILE_NAME
    durable = path.read_bytes()[:SLOT_BYTES]
    for committed in (78, 79, 80):
        file.write(RECORD._replace(committed=committed), durable=False)
        assert path.read_bytes()[:SLOT_BYTES] == durable
    newest = newest_record(path.read_bytes())
    assert newest is not None
    assert newest[0].committed == 80
    file.write(RECORD._replace(committed=81), durable=True)
    assert path.read_bytes()[:SLOT_BYTES] == durable
    second = path.read_bytes()[SLOT_DISTANCE_BYTES:]
    file.write(RECORD._replace(committed=82), durable=True)
    assert path.read_bytes()[SLOT_DISTANCE_BYTES:] == second
    assert path.read_bytes()[:SLOT_BYTES] != durable
    file.close()


def test_a_new_file_has_its_name_after_a_power_cut() -> None:
    disk = VirtualDisk(Chance(1, "hard state"))
    disk.make_folder("/data")
    HardStateFile.create(disk, "/data", RECORD).close()
    disk.cut_power(CrashStyle(keep=0.0, torn=0.0, names_in_order=True))
    opened = HardStateFile.open(disk, "/data")
    assert opened is not None
    assert opened[1] == RECORD


def test_a_file_in_which_no_record_is_whole_is_refused(tmp_path: Path) -> None:
    file = HardStateFile.create(OsDisk(), str(tmp_path), RECORD)
    file.close()
    (tmp_path / FILE_NAME).write_bytes(bytes(FILE_BYTES))
    with pytest.raises(HardStateLost):
        HardStateFile.open(OsDisk(), str(tmp_path))


def open_one(base: Path) -> SegmentStore:
    return open_store(OsDisk(), str(base), CONFIG, "g", "n0")


def test_term_and_vote_are_there_after_the_sync_and_a_kill(tmp_path: Path) -> None:
    store = open_one(tmp_path)
    states = [HardState(1, "n0"), HardState(2, None), HardState(2, "n1"), HardState(9, "n2")]
    for state in states:
        store.begin_sync(state).run()
        store._files.close()
        store = open_one(tmp_path)
        assert store.hard_state == state
    store.close()


@pytest.mark.parametrize("broken", [HardState(4, "n1"), HardState(5, "n2"), HardState(5, None)])
def test_a_promise_is_never_taken_back(tmp_path: Path, broken: HardState) -> None:
    store = open_one(tmp_path)
    store.begin_sync(HardState(5, "n1")).run()
    with pytest.raises(InvariantBroken):
        store.begin_sync(broken)
    store.begin_sync(HardState(5, "n1", 0)).run()
    store.begin_sync(HardState(6, None)).run()
    store.close()


def test_committed_is_recorded_only_as_far_as_it_is_durable(tmp_path: Path) -> None:
    store = open_one(tmp_path)
    store.append(1, Magic.NORMAL, [b"a", b"b", b"c"])
    store.begin_sync(None).run()
    store.append(1, Magic.NORMAL, [b"d"])
    store.note_committed(3)
    store.save_committed()
    store._files.close()
    store = open_one(tmp_path)
    assert store.hard_state.committed == 2
    store.note_committed(3)
    store.close()
    store = open_one(tmp_path)
    assert store.hard_state.committed == 3
    store.close()


def test_committed_that_was_saved_during_a_sync_goes_with_the_next_one(tmp_path: Path) -> None:
    store = open_one(tmp_path)
    store.append(1, Magic.NORMAL, [b"a", b"b"])
    work = store.begin_sync(None)
    store.note_committed(1)
    store.save_committed()
    work.run()
    assert store.hard_state.committed == -1
    store.begin_sync(None).run()
    assert store.hard_state == HardState(0, None, 1)
    store.close()


def test_committed_handed_over_with_the_vote_is_recorded(tmp_path: Path) -> None:
    store = open_one(tmp_path)
    store.append(1, Magic.NORMAL, [b"a", b"b"])
    store.begin_sync(HardState(1, "n0", 1)).run()
    assert store.hard_state == HardState(1, "n0", 1)
    store.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("voteLeader=n1\ncurrTerm=7\n", JavaTerm(7, "n1")),
        ("currTerm=7\nvoteLeader=\n", JavaTerm(7, None)),
        ("currTerm=0", JavaTerm(0, None)),
        ("#comment\r\ncurrTerm=3\r\nvoteLeader=n2\r\n", JavaTerm(3, "n2")),
        ("voteLeader=n1\n", None),
        ("currTerm=-1\n", None),
        ("currTerm=x\n", None),
        ("", None),
    ],
)
def test_javas_term_file_is_read(text: str, found: JavaTerm | None) -> None:
    assert parse_java_term(text) == found
