"""What a folder keeps of how its group began, and which starts it refuses."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from dledger.config import NodeConfig
from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import encode_configuration
from dledger.entry import Magic
from dledger.errors import (
    BirthUnreadable,
    ConfigInvalid,
    DataFolderMismatch,
    DLedgerError,
    FirstVotersDiffer,
)
from dledger.rescue.backup import back_up
from dledger.rescue.group_recovery import recover_group
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.store.birth_file import BirthFile
from dledger.store.birth_record import BirthRecord, decode_birth, encode_birth, voters_sum
from dledger.store.disk import Disk, OsDisk
from dledger.store.noop_body import BEFORE_BIRTHS, NoopBody, encode_noop_body
from dledger.store.repair import repair_folder
from dledger.store.segment_store import SegmentStore
from dledger.store.set_aside import set_aside
from dledger.store.small_file import write_small_file
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, PowerCut, VirtualDisk
from tests.dledger.node.test_node import Register

SMALL = StoreConfig(
    segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500, spare_segments=0
)
ADDRESSES = {f"n{n}": f"10.0.0.{n}:20911" for n in range(10)}
BIRTH, OTHER_BIRTH = bytes(range(16)), bytes(range(1, 17))
FOLDER = "/base/dledger-n0"
STYLES = [CrashStyle(keep, 0.5, in_order) for keep in (0.0, 0.5, 1.0) for in_order in (True, False)]


def config(*names: str, folder: str = "/base", joining: bool = False) -> NodeConfig:
    peers = {name: ADDRESSES[name] for name in names or ("n0", "n1", "n2")}
    data_dir = Path(folder)
    return NodeConfig(
        group="g", node_id="n0", peers=peers, data_dir=data_dir, store=SMALL, joining=joining
    )


def started(disk: Disk, config: NodeConfig) -> Opened:
    return open_and_restore(disk, config, Register())


def start(disk: Disk, config: NodeConfig) -> BirthRecord:
    """Start and stop."""
    opened = started(disk, config)
    opened.store.close()
    return opened.birth


def lived(
    disk: Disk, config: NodeConfig, *, body: bytes | None = None, change: bool = False
) -> None:
    """Start, append the first leader's no-op and perhaps a change, commit, and stop."""
    opened = started(disk, config)
    store = opened.store
    if body is None:
        body = encode_noop_body(NoopBody("n0", 1, BIRTH))
    store.append(1, Magic.NOOP, [body])
    if change:
        group = Configuration(voters=frozenset(["n0", "n3"]), addresses=_of("n0", "n3"))
        store.append(1, Magic.CONFIGURATION, [encode_configuration(-1, group)])
    committed(store)
    store.set_standing(Standing.PROVEN)
    store.close()


def committed(store: SegmentStore) -> None:
    store.note_committed(store.last_index)
    store.begin_sync(HardState(1, "n0", store.last_index)).run()


def _of(*names: str) -> dict[str, str]:
    return {name: ADDRESSES[name] for name in names}


@pytest.fixture
def disk() -> VirtualDisk:
    return VirtualDisk(Chance(1, "disk"))


# --- the list of first voters ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [("n0",), ("n0", "n1"), ("n0", "n1", "n2", "n3"), ("n0", "n1", "n3"), ("n0", "n3", "n4")],
    ids="-".join,
)
@pytest.mark.parametrize("lives", [False, True])
def test_a_start_with_other_first_voters_is_refused_and_changes_nothing(
    disk: VirtualDisk, names: tuple[str, ...], lives: bool
) -> None:
    start(disk, config())
    if lives:
        lived(disk, config())
    with pytest.raises(FirstVotersDiffer, match="dledger members --add") as refused:
        start(disk, config(*names))
    assert refused.value.began_with == ("n0", "n1", "n2")
    assert refused.value.started_with == tuple(sorted(names))
    assert "\n" not in str(refused.value)
    start(disk, config())  # the folder is not locked, and says what it said


def test_a_group_that_one_began_alone_is_not_that_of_three(disk: VirtualDisk) -> None:
    lived(disk, config("n0"))
    with pytest.raises(FirstVotersDiffer, match="began with the voters n0, says"):
        start(disk, config())


def test_neither_the_order_of_the_list_nor_an_address_makes_it_another_one(
    disk: VirtualDisk,
) -> None:
    start(disk, config("n0", "n1", "n2"))
    start(disk, config("n2", "n0", "n1"))
    moved = config()
    moved = moved.with_changes({"peers": {**moved.peers, "n2": "10.9.9.9:1"}})
    assert start(disk, moved).first_voters == moved.began_with
    again = BirthFile(disk, FOLDER).record
    assert again is not None
    assert again.first_voters == moved.began_with


def test_once_the_log_holds_a_change_the_list_of_a_start_does_not_count(disk: VirtualDisk) -> None:
    lived(disk, config(), change=True)
    record = start(disk, config("n0", "n3"))
    assert record.first_voters == config().began_with


def test_a_member_that_joined_is_not_started_with_a_list_before_its_log_says_who_belongs(
    disk: VirtualDisk,
) -> None:
    start(disk, config("n0", joining=True))
    with pytest.raises(FirstVotersDiffer, match="--join"):
        start(disk, config())
    lived(disk, config("n0", joining=True), change=True)
    assert start(disk, config("n0", "n3")).first_voters == Configuration()


def test_a_member_that_holds_nothing_may_join_though_it_was_started_with_a_list(
    disk: VirtualDisk,
) -> None:
    start(disk, config("n0", "n5"))
    assert start(disk, config("n0", joining=True)).first_voters == Configuration()


@pytest.mark.parametrize("lives", [False, True])
def test_a_member_that_may_have_counted_keeps_its_first_voters_when_it_joins(
    disk: VirtualDisk, lives: bool
) -> None:
    opened = started(disk, config())
    opened.store.set_standing(Standing.PROVEN)
    opened.store.close()
    if lives:
        lived(disk, config())
    assert start(disk, config("n0", joining=True)).first_voters == config().began_with


# --- folders of earlier versions ------------------------------------------------------------------


def forget(disk: VirtualDisk) -> None:
    """Make it the folder of an earlier version."""
    disk.remove(f"{FOLDER}/birth")


def test_a_folder_of_an_earlier_version_takes_the_list_that_it_is_started_with(
    disk: VirtualDisk,
) -> None:
    lived(disk, config(), body=b"")
    forget(disk)
    assert start(disk, config()) == BirthRecord("g", config().began_with, BEFORE_BIRTHS)
    with pytest.raises(FirstVotersDiffer):
        start(disk, config("n0"))


def test_of_a_folder_of_an_earlier_version_whose_log_holds_a_change_no_list_is_the_first(
    disk: VirtualDisk,
) -> None:
    lived(disk, config(), body=b"", change=True)
    forget(disk)
    for names in (("n0", "n3"), ("n0", "n1", "n2"), ("n0",)):
        assert start(disk, config(*names)) == BirthRecord("g", None, BEFORE_BIRTHS)


def test_a_founder_of_an_earlier_version_that_is_started_with_join_may_have_its_list_again(
    disk: VirtualDisk,
) -> None:
    lived(disk, config(), body=b"")
    forget(disk)
    start(disk, config("n0", joining=True))
    assert start(disk, config()).first_voters is None


def test_a_log_whose_first_entry_is_a_message_began_before_births(disk: VirtualDisk) -> None:
    store = started(disk, config()).store
    store.append(1, Magic.NORMAL, [b"of Java"])
    committed(store)
    store.close()
    assert start(disk, config()).birth == BEFORE_BIRTHS


# --- the birth ------------------------------------------------------------------------------------


def test_the_birth_is_read_from_the_first_entry_once_that_is_committed(disk: VirtualDisk) -> None:
    store = started(disk, config()).store
    store.append(1, Magic.NOOP, [encode_noop_body(NoopBody("n0", 1, BIRTH))])
    store.begin_sync(HardState(1, "n0", -1)).run()
    store.close()
    opened = started(disk, config())
    assert opened.birth.birth == b""
    committed(opened.store)
    opened.store.close()
    assert start(disk, config()).birth == BIRTH


def test_a_log_of_another_birth_than_the_folder_says_is_refused(disk: VirtualDisk) -> None:
    lived(disk, config())
    record = start(disk, config())
    BirthFile(disk, FOLDER).write(record._replace(birth=OTHER_BIRTH))
    with pytest.raises(DataFolderMismatch, match=OTHER_BIRTH.hex()):
        start(disk, config())


def test_the_record_of_another_group_is_refused(disk: VirtualDisk) -> None:
    record = start(disk, config())
    BirthFile(disk, FOLDER).write(record._replace(group="other"))
    with pytest.raises(DataFolderMismatch, match="group other"):
        start(disk, config())


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("steps", range(30))
def test_no_power_cut_takes_back_the_list_that_a_member_went_by(
    steps: int, style: CrashStyle
) -> None:
    disk = VirtualDisk(Chance(steps, "disk"))
    disk.steps_left = steps
    took_part = False
    try:
        started(disk, config("n0"))
        took_part = True
    except PowerCut:
        assert steps < 25
    disk.cut_power(style)
    try:
        start(disk, config())
    except FirstVotersDiffer:
        return  # it was written, and nobody may have gone by it yet
    assert not took_part
    # Nothing was promised by the list that was forgotten.
    store = started(disk, config()).store
    assert (store.hard_state, store.last_index) == (HardState(0, None, -1), -1)


# --- hostile records ------------------------------------------------------------------------------


def test_every_flipped_byte_and_every_shorter_record_is_noticed(disk: VirtualDisk) -> None:
    start(disk, config())
    record = BirthFile(disk, FOLDER).record
    assert record is not None
    whole = encode_birth(record)
    assert decode_birth(whole) == record
    for at in range(len(whole)):
        assert decode_birth(whole[:at]) is None
        flipped = bytearray(whole)
        flipped[at] ^= 0x01
        assert decode_birth(bytes(flipped)) is None
    write_small_file(disk, FOLDER, "birth", whole[:-9])
    with pytest.raises(BirthUnreadable, match="copy this file"):
        start(disk, config())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 2, "group": "g", "first_voters": null, "birth": ""}',
        b'{"version": 1, "group": 7, "first_voters": null, "birth": ""}',
        b'{"version": 1, "group": "g", "first_voters": ["n0"], "birth": ""}',
        b'{"version": 1, "group": "g", "first_voters": {"n0": 7}, "birth": ""}',
        b'{"version": 1, "group": "g", "first_voters": {"n0": "nowhere"}, "birth": ""}',
        b'{"version": 1, "group": "g", "first_voters": {"a":"h:1","b":"h:1"}, "birth": ""}',
        b'{"version": 1, "group": "g", "first_voters": null, "birth": "00"}',
        b'{"version": 1, "group": "g", "first_voters": null, "birth": "xy"}',
        b'{"version": 1, "group": "g", "first_voters": null, "birth": null}',
        b"[" * 5000,
        b"\xff\xfe",
    ],
)
def test_a_record_with_a_right_sum_and_wrong_fields_is_none(line: bytes) -> None:
    assert decode_birth(line + b"\n" + b"%08x\n" % crc32(line + b"\n")) is None


def test_names_are_compared_as_a_set() -> None:
    assert voters_sum(["a", "b"]) == voters_sum(["b", "a"])
    assert voters_sum(["ab"]) != voters_sum(["a", "b"])
    assert len({voters_sum(n) for n in (["a"], ["b"], ["a", "b"], ["a", "b", "c"])}) == 4


def test_the_largest_record_is_read_back(tmp_path: Path) -> None:
    wide = [f"{n}" + "\U00010000" * 30 for n in range(9)]
    addresses = {name: f"{n}" + "h" * 252 + ":65535" for n, name in enumerate(wide)}
    group = Configuration(voters=frozenset(wide), addresses=addresses)
    BirthFile(OsDisk(), str(tmp_path)).write(BirthRecord("g" * 64, group, BIRTH))
    assert BirthFile(OsDisk(), str(tmp_path)).record == BirthRecord("g" * 64, group, BIRTH)


# --- work on folders ------------------------------------------------------------------------------


def test_a_member_that_begins_anew_keeps_its_first_voters_and_birth(tmp_path: Path) -> None:
    here = config(folder=str(tmp_path))
    lived(OsDisk(), here)
    record = start(OsDisk(), here)
    set_aside(str(tmp_path / "dledger-n0"))
    assert start(OsDisk(), here) == record
    with pytest.raises(FirstVotersDiffer):
        start(OsDisk(), config("n0", folder=str(tmp_path)))


def test_first_voters_and_birth_go_with_a_copy(tmp_path: Path) -> None:
    here = config(folder=str(tmp_path / "a"))
    lived(OsDisk(), here)
    record = start(OsDisk(), here)
    made = back_up(str(tmp_path / "a" / "dledger-n0"), str(tmp_path / "b"))
    assert BirthFile(OsDisk(), made.folder).record == record


def test_a_log_is_not_repaired_from_one_of_another_birth(tmp_path: Path) -> None:
    for name, birth in (("a", BIRTH), ("b", OTHER_BIRTH)):
        here = config(folder=str(tmp_path / name))
        lived(OsDisk(), here, body=encode_noop_body(NoopBody("n0", 1, birth)))
        start(OsDisk(), here)
    with pytest.raises(ConfigInvalid, match="began separately"):
        repair_folder(str(tmp_path / "a" / "dledger-n0"), str(tmp_path / "b" / "dledger-n0"))


def test_a_recovered_member_starts_with_any_list_for_its_log_holds_a_change(
    tmp_path: Path,
) -> None:
    here = config(folder=str(tmp_path))
    lived(OsDisk(), here)
    start(OsDisk(), here)
    folder = str(tmp_path / "dledger-n0")
    recover_group(folder, 0, ADDRESSES["n0"], mark="0123456789abcdef")
    alone = start(OsDisk(), config("n0", folder=str(tmp_path)))
    assert alone == BirthRecord("g", here.began_with, BIRTH)


def test_each_error_is_one_of_the_library() -> None:
    for kind in (FirstVotersDiffer, BirthUnreadable):
        assert issubclass(kind, DLedgerError)
