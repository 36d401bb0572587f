"""What `recover_group` writes into the folder of the member that is left."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from dledger.core.hard_state import HardState
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import check_step
from dledger.core.membership.configuration_codec import NumberedConfiguration, encode_configuration
from dledger.core.membership.membership import Membership
from dledger.entry import Magic
from dledger.errors import ConfigInvalid, DataFolderLocked
from dledger.node.recovered_membership import recovered_membership
from dledger.rescue.group_recovery import RecoveryRefused, recover_group, recovery_steps
from dledger.rescue.survivor import longest, look_at
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig

MARK = "0123456789abcdef"

ADDRESSES = {f"n{n}": f"10.0.0.{n}:20911" for n in range(6)}
SMALL = StoreConfig(segment_bytes=64 * 1024, index_segment_bytes=32 * 1024, max_body_bytes=1024)


def group_of(*members: str, learners: tuple[str, ...] = (), outgoing: str = "") -> Configuration:
    voting = frozenset(members) | frozenset(outgoing.split())
    return Configuration(
        voters=frozenset(members),
        outgoing=frozenset(outgoing.split()),
        learners=frozenset(learners),
        addresses={name: ADDRESSES[name] for name in voting | frozenset(learners)},
    )


def opened(folder: Path, node_id: str = "n0") -> SegmentStore:
    return open_store(OsDisk(), str(folder), SMALL, "g", node_id)


def a_member(
    folder: Path,
    node_id: str = "n0",
    *,
    entries: int = 5,
    term: int = 3,
    change: NumberedConfiguration | None = None,
    committed: int = 1,
) -> Path:
    store = opened(folder, node_id)
    store.append(term, Magic.NORMAL, [b"body-%d" % n for n in range(entries)])
    if change is not None:
        store.append(term, Magic.CONFIGURATION, [encode_configuration(*change)])
    store.note_committed(committed)
    store.begin_sync(HardState(term, node_id, committed)).run()
    store.close()
    return folder / f"dledger-{node_id}"


def membership_of(folder: Path, began_with: Configuration) -> Membership:
    store = opened(folder)
    try:
        membership = recovered_membership(store, began_with)
        membership.committed_to(store.hard_state.committed)
        return membership
    finally:
        store.close()


def test_the_member_is_the_only_voter_and_everything_it_holds_is_committed(tmp_path: Path) -> None:
    home = a_member(tmp_path)
    done = recover_group(str(home), 4, ADDRESSES["n0"], when="now", mark=MARK)
    assert (done.known_committed, done.kept_through, done.term, done.generation) == (1, 4, 4, 1)
    after = look_at(str(home))
    assert (after.committed, after.last_index, after.last_term, after.generation) == (5, 5, 4, 1)
    began_with = group_of("n0", "n1", "n2")
    assert membership_of(tmp_path, began_with).configuration == group_of("n0")


@pytest.mark.parametrize(
    "before",
    [
        group_of("n0", "n1", "n2"),
        group_of("n0", "n1", "n2", "n3", "n4", learners=("n5",)),
        group_of("n0", "n3", outgoing="n0 n1 n2"),
        group_of("n1", "n2", "n3", learners=("n0",)),
        group_of("n1", "n2", "n3"),
        group_of("n0"),
    ],
    ids=str,
)
def test_every_member_that_reads_the_log_comes_to_the_same_group(
    tmp_path: Path, before: Configuration
) -> None:
    home = a_member(tmp_path, change=NumberedConfiguration(-1, before))
    recover_group(str(home), 5, ADDRESSES["n0"], learners={"n9": ADDRESSES["n1"]}, mark=MARK)
    found = membership_of(tmp_path, group_of("n0", "n1", "n2")).configuration
    assert (found.voters, found.learners) == (frozenset({"n0"}), frozenset({"n9"}))
    assert found.addresses == {"n0": ADDRESSES["n0"], "n9": ADDRESSES["n1"]}


def test_each_step_to_the_new_group_is_a_legal_one() -> None:
    before = group_of("n0", "n1", "n2", learners=("n3",))
    steps = [before, *recovery_steps(NumberedConfiguration(7, before), "n0", "10.9.9.9:1", {})]
    for earlier, later in pairwise(steps):
        check_step(earlier, later)
    assert steps[-1].addresses == {"n0": "10.9.9.9:1"}


def test_what_a_folder_holds_can_be_told_as_json(tmp_path: Path) -> None:
    before = group_of("n0", "n1", "n2", learners=("n3",))
    home = a_member(tmp_path, change=NumberedConfiguration(-1, before))
    told = json.loads(json.dumps(look_at(str(home)).as_dict()))
    assert told["voters"] == ["n0", "n1", "n2"]
    assert told["addresses"] == dict(before.addresses)
    assert (told["last_index"], told["last_term"], told["committed"]) == (5, 3, 1)


def test_it_can_be_recovered_again(tmp_path: Path) -> None:
    home = a_member(tmp_path)
    recover_group(str(home), 4, ADDRESSES["n0"], mark=MARK)
    done = recover_group(str(home), 5, ADDRESSES["n0"], mark=MARK)
    assert (done.generation, look_at(str(home)).generation) == (2, 2)
    assert membership_of(tmp_path, group_of("n0", "n1", "n2")).configuration == group_of("n0")


def test_what_is_changed_is_kept_as_it_was(tmp_path: Path) -> None:
    home = a_member(tmp_path)
    record = (home / "hard-state").read_bytes()
    segment = (home / "data" / ("0" * 20)).read_bytes()
    done = recover_group(str(home), 4, ADDRESSES["n0"], when="2031-01-01T00:00:00+00:00", mark=MARK)
    copies = home / "recovery-1"
    assert done.copies == str(copies)
    assert (copies / "hard-state").read_bytes() == record
    assert (copies / "data" / ("0" * 20)).read_bytes() == segment
    told = json.loads((copies / "recovery.json").read_text())
    assert (told["when"], told["kept_through"]) == ("2031-01-01T00:00:00+00:00", 4)


def test_another_end_of_the_log_than_the_operator_saw_is_refused(tmp_path: Path) -> None:
    home = a_member(tmp_path)
    with pytest.raises(RecoveryRefused, match="ends with entry 4, not 3"):
        recover_group(str(home), 3, ADDRESSES["n0"], mark=MARK)
    assert not (home / "generation").exists()


def test_a_member_that_runs_is_refused(tmp_path: Path) -> None:
    home = a_member(tmp_path)
    store = opened(tmp_path)
    try:
        with pytest.raises(DataFolderLocked):
            recover_group(str(home), 4, ADDRESSES["n0"], mark=MARK)
    finally:
        store.close()
    assert not (home / "generation").exists()


@pytest.mark.parametrize("committed", [1, 4])
def test_a_log_that_is_broken_inside_is_refused(tmp_path: Path, committed: int) -> None:
    home = a_member(tmp_path, committed=committed)
    segment = home / "data" / ("0" * 20)
    content = bytearray(segment.read_bytes())
    content[content.index(b"body-2")] ^= 1
    segment.write_bytes(content)
    last = look_at(str(home)).last_index
    assert last == 1
    with pytest.raises(Exception, match="repair"):
        recover_group(str(home), last, ADDRESSES["n0"], mark=MARK)
    assert segment.read_bytes() == content


def test_an_empty_folder_is_nothing_to_begin_from(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(RecoveryRefused, match="no entry"):
        recover_group(str(tmp_path / "dledger-n0"), -1, ADDRESSES["n0"], mark=MARK)


def test_a_folder_of_another_name_is_refused(tmp_path: Path) -> None:
    a_member(tmp_path).rename(tmp_path / "copy")
    with pytest.raises(RecoveryRefused, match="dledger-n0"):
        recover_group(str(tmp_path / "copy"), 4, ADDRESSES["n0"], mark=MARK)


def test_the_member_cannot_be_its_own_learner(tmp_path: Path) -> None:
    home = a_member(tmp_path)
    with pytest.raises(ConfigInvalid, match="n0"):
        recover_group(str(home), 4, ADDRESSES["n0"], learners={"n0": ADDRESSES["n1"]}, mark=MARK)


def test_the_best_folder_has_the_newest_generation_then_term_then_index(tmp_path: Path) -> None:
    folders = [
        a_member(tmp_path, "n0", term=3, entries=9),
        a_member(tmp_path, "n1", term=4, entries=5),
        a_member(tmp_path, "n2", term=4, entries=7),
    ]
    found = [look_at(str(folder)) for folder in folders]
    assert longest(found).node_id == "n2"
    recover_group(str(folders[0]), 8, ADDRESSES["n0"], mark=MARK)
    assert longest([look_at(str(folder)) for folder in folders]).node_id == "n0"
    other = open_store(OsDisk(), str(tmp_path), SMALL, "other", "n5")
    other.close()
    with pytest.raises(ConfigInvalid, match="g and other"):
        longest([*found, look_at(str(tmp_path / "dledger-n5"))])
