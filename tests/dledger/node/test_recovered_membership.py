"""What a member knows of its group after a restart, over the real store."""

from collections.abc import Sequence

import pytest

from dledger.core.entry_handler import ConfigurationEntry
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration, encode_configuration
from dledger.core.messages import Phase, PushRequest
from dledger.entry import Magic
from dledger.entry_run import EntryRun
from dledger.errors import ConfigurationLost, MessageMalformed
from dledger.node.log_writer import LogWriter
from dledger.node.recovered_membership import recovered_membership
from dledger.store import hard_state_file
from dledger.store.hard_state_file import decode_record, encode_record
from dledger.store.open_store import open_store
from dledger.store.push_check import PushCheck
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import VirtualDisk
from tests.dledger.core.configurations import configuration
from tests.dledger.store.memory_store import MemoryStore
from tests.dledger.store.test_store_hard_state import RECORD

CONFIG = StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=500)
ABC, ABCD, ABCDE = (configuration(letters) for letters in ("abc", "abcd", "abcde"))


class Folder:
    def __init__(self) -> None:
        self.disk = VirtualDisk(Chance(1, "folder"))
        self.store = self.open()

    def open(self) -> SegmentStore:
        self.store = open_store(self.disk, "/base", CONFIG, "g", "a")
        return self.store

    def reopen(self) -> SegmentStore:
        self.store.close()
        return self.open()

    def fill(self, count: int, body: bytes = bytes(200)) -> None:
        self.store.append(1, Magic.NORMAL, [body] * count)

    def change(self, base: int, group: Configuration) -> int:
        body = encode_configuration(base, group)
        return self.store.append(1, Magic.CONFIGURATION, [body]).first

    def commit(self) -> None:
        self.store.note_committed(self.store.last_index)
        self.store.begin_sync(HardState(1)).run()


def in_force(store: SegmentStore, snapshot: bytes = b"") -> tuple[int, Configuration]:
    membership = recovered_membership(store, ABC, snapshot)
    membership.committed_to(store.last_index)
    return membership.index, membership.configuration


def test_a_log_without_changes_says_nothing() -> None:
    folder = Folder()
    folder.fill(3)
    assert in_force(folder.reopen()) == (-1, ABC)


def test_the_changes_of_a_log_are_there_after_a_restart() -> None:
    folder = Folder()
    folder.fill(3)
    first = folder.change(-1, ABCD)
    second = folder.change(first, ABCDE)
    assert in_force(folder.store) == (second, ABCDE)
    assert in_force(folder.reopen()) == (second, ABCDE)


def test_changes_before_the_part_that_an_open_checks_are_found_by_following_them_back() -> None:
    folder = Folder()
    first = folder.change(-1, ABCD)
    folder.fill(20)
    second = folder.change(first, ABCDE)
    folder.fill(20)
    folder.commit()
    store = folder.reopen()
    assert store.recovered.entries_checked < second
    assert store.configuration_indexes == [second]
    membership = recovered_membership(store, ABC)
    membership.committed_to(store.last_index)
    assert membership.at(second - 1) == (first, ABCD)
    assert membership.at(0) == (0, ABCD)
    assert membership.index == second
    # And again, when nothing was written since.
    assert in_force(folder.reopen()) == (second, ABCDE)


def test_a_change_that_was_cut_off_is_not_found_again() -> None:
    folder = Folder()
    first = folder.change(-1, ABCD)
    folder.fill(2)
    folder.change(first, ABCDE)
    folder.store.truncate_after(1)
    assert folder.store.configuration_indexes == [first]
    assert in_force(folder.reopen()) == (first, ABCD)


def test_a_snapshot_says_what_the_log_before_it_said() -> None:
    folder = Folder()
    first = folder.change(-1, ABCD)
    folder.fill(20)
    second = folder.change(first, ABCDE)
    folder.commit()
    folder.store.discard_before(second)
    folder.commit()
    store = folder.reopen()
    assert store.first_index > first
    with pytest.raises(ConfigurationLost, match=f"entry {first}, "):
        recovered_membership(store, ABC)
    snapshot = encode_configuration(first, ABCD)
    assert in_force(store, snapshot) == (second, ABCDE)
    newer = encode_configuration(second, ABCDE)
    assert in_force(store, newer) == (second, ABCDE)


def test_settings_know_better_than_a_snapshot_where_founders_live() -> None:
    store = Folder().store
    other = Configuration(
        voters=frozenset("abc"),
        addresses=dict.fromkeys("abc", "") | {letter: f"elsewhere-{letter}:1" for letter in "abc"},
    )
    snapshot = encode_configuration(-1, other)
    assert in_force(store, snapshot) == (-1, ABC)
    assert recovered_membership(store, Configuration(), snapshot).configuration == other


def test_an_entry_that_should_be_a_change_and_is_none_is_told() -> None:
    folder = Folder()
    folder.store.append(1, Magic.CONFIGURATION, [b"nonsense"])
    with pytest.raises(ConfigurationLost, match="entry 0, "):
        recovered_membership(folder.reopen(), ABC)


# --- the record -----------------------------------------------------------------------------------


def test_a_record_of_the_version_before_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RECORD._replace(configuration_index=7)
    assert decode_record(encode_record(record, 9)) == (record, 9)
    old = hard_state_file._NUMBERS_1

    class Old:
        size = old.size

        @staticmethod
        def pack(magic: bytes, _: int, *numbers: int) -> bytes:
            return old.pack(magic, 1, *numbers[:-1])

    with monkeypatch.context() as patch:
        patch.setattr(hard_state_file, "_NUMBERS", Old)
        slot = encode_record(record, 9)
    assert decode_record(slot) == (record._replace(configuration_index=-1), 9)


# --- on the way into the log ----------------------------------------------------------------------


def push_of(magics_and_bodies: Sequence[tuple[Magic, bytes]]) -> PushRequest:
    store = MemoryStore()
    for magic, body in magics_and_bodies:
        store.append(1, magic, [body])
    last = store.last_index
    raw = store.read(0, last, 1 << 20)
    runs = tuple(store.term_runs())
    return PushRequest(1, Phase.APPEND, -1, -1, last, -1, runs=runs, payload=raw)


def test_a_push_is_searched_for_changes() -> None:
    change = encode_configuration(-1, ABCD)
    bodies = [(Magic.NORMAL, b"one"), (Magic.CONFIGURATION, change), (Magic.NORMAL, change)]
    checked = PushCheck(MemoryStore()).check(push_of(bodies))
    assert checked.changes == ((1, NumberedConfiguration(-1, ABCD)),)
    without = PushCheck(MemoryStore()).check(push_of([(Magic.NORMAL, b"one")]))
    assert without.changes == ()


def test_a_push_with_a_change_that_is_none_is_malformed() -> None:
    with pytest.raises(MessageMalformed):
        PushCheck(MemoryStore()).check(push_of([(Magic.CONFIGURATION, b"nonsense")]))


def test_a_leader_s_change_is_written_with_its_magic() -> None:
    folder = Folder()

    class NoBatches:
        def keep(self, run: EntryRun, raw: bytes) -> None:
            return

    writer = LogWriter(folder.store, NoBatches())  # type: ignore[arg-type]
    writer.carry_out(ConfigurationEntry(0, 1, encode_configuration(-1, ABCD)))
    assert folder.store.header_at(0).magic == Magic.CONFIGURATION
    assert in_force(folder.store) == (0, ABCD)


def test_a_change_is_written_though_it_is_longer_than_what_applications_may_append() -> None:
    for store in (
        open_store(VirtualDisk(Chance(1, "small")), "/b", SMALL, "g", "a"),
        MemoryStore(SMALL),
    ):
        written = store.append(1, Magic.CONFIGURATION, [encode_configuration(-1, ABCD)])
        assert store.configuration_indexes == [written.first]


SMALL = StoreConfig(segment_bytes=1024, index_segment_bytes=320, max_body_bytes=20)
