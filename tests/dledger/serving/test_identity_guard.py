"""What a member makes of what others know of its group."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.config import NodeConfig
from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.errors import DiskFailed
from dledger.serving.identity_guard import MAX_TOLD, IdentityGuard
from dledger.snapshots.restoring import Opened, open_and_restore
from dledger.store.birth_record import voters_sum
from dledger.store.disk import OsDisk
from dledger.store.generation import Generation
from dledger.store.generation_file import GenerationFile
from dledger.store.noop_body import NoopBody, encode_noop_body
from dledger.wire.group_identity import ANOTHER_GROUP, GroupIdentity, Superseded
from tests.dledger.node.test_node import Register

PEERS = {f"n{n}": f"10.0.0.{n}:20911" for n in range(3)}
OURS = voters_sum(PEERS)
BIRTH, OTHER_BIRTH = bytes(range(16)), bytes(range(1, 17))
A, B = "a" * 16, "b" * 16


class Guarded:
    """A member's folder and its guard, and what the guard told the member."""

    def __init__(self, folder: Path, *, lives: bool, joining: bool = False) -> None:
        self.adopted = self.called = 0
        self.failure: Exception | None = None
        config = NodeConfig(group="g", node_id="n0", peers=PEERS, data_dir=folder, joining=joining)
        self.opened: Opened = open_and_restore(OsDisk(), config, Register())
        if lives:
            store = self.opened.store
            store.append(1, Magic.NOOP, [encode_noop_body(NoopBody("n0", 1, BIRTH))])
            store.begin_sync(HardState(1, "n0", 0)).run()
        self.guard = IdentityGuard(config, self.opened, self._adopt, self._call, self._fail)
        if lives:
            self.guard.born(BIRTH)

    def _adopt(self) -> None:
        self.adopted += 1

    def _call(self) -> None:
        self.called += 1

    def _fail(self, error: Exception) -> None:
        self.failure = error


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path, lives=True)
    yield guarded
    guarded.opened.store.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path, lives=False, joining=True)
    yield guarded
    guarded.opened.store.close()


@pytest.fixture
def founder(tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path, lives=False)
    yield guarded
    guarded.opened.store.close()


def test_a_generation_that_the_disk_does_not_read_or_write_is_an_error_of_the_disk(
    tmp_path: Path, empty: Guarded
) -> None:
    folder = tmp_path / "dledger-n0"
    (folder / "generation.new").mkdir()
    empty.guard.refusal("n1", GroupIdentity(Generation(2, A), OURS, ""))
    assert isinstance(empty.failure, DiskFailed)
    (folder / "generation").mkdir()
    config = NodeConfig(group="g", node_id="n0", peers=PEERS, data_dir=tmp_path, joining=True)
    with pytest.raises(DiskFailed, match="generation: Is a directory"):
        IdentityGuard(config, empty.opened, empty._adopt, empty._call, empty._fail)


def test_a_member_introduces_itself_with_all_it_knows(member: Guarded) -> None:
    assert member.guard.identity.of_group == GroupIdentity(Generation(), OURS, BIRTH.hex())


@pytest.mark.parametrize(
    ("voters", "birth"), [(OURS, BIRTH.hex()), ("", BIRTH.hex()), (OURS, ""), ("", "")]
)
def test_what_is_unknown_calls_nothing(member: Guarded, voters: str, birth: str) -> None:
    assert member.guard.refusal("n1", GroupIdentity(Generation(), voters, birth)) is None
    assert member.called == 0


@pytest.mark.parametrize(
    ("sender", "other", "called"),
    [
        ("n7", GroupIdentity(Generation(), "", BIRTH.hex()), 1),  # it joined a group that began
        ("n7", GroupIdentity(Generation(), "", ""), 0),  # it may be new itself
        ("n1", GroupIdentity(Generation(), OURS, BIRTH.hex()), 0),  # a first voter: it is asked
        ("n1", GroupIdentity(Generation(), voters_sum(["n0"]), ""), 1),
    ],
)
def test_a_member_without_a_log_notes_calls_of_a_group_beyond_its_first_voters(
    founder: Guarded, sender: str, other: GroupIdentity, called: int
) -> None:
    founder.guard.refusal(sender, other)
    assert founder.called == called


def test_one_that_knows_nothing_takes_any_group(empty: Guarded) -> None:
    other = GroupIdentity(Generation(), voters_sum(["n7"]), OTHER_BIRTH.hex())
    assert empty.guard.refusal("n1", other) is None


@pytest.mark.parametrize(
    "other",
    [
        GroupIdentity(Generation(), voters_sum(["n0"]), ""),
        GroupIdentity(Generation(), voters_sum(["n0"]), BIRTH.hex()),
        GroupIdentity(Generation(), OURS, OTHER_BIRTH.hex()),
        GroupIdentity(Generation(), "", OTHER_BIRTH.hex()),
        GroupIdentity(Generation(7, A), voters_sum(["n0"]), ""),
        GroupIdentity(Generation(7, A), OURS, OTHER_BIRTH.hex()),
    ],
)
def test_a_member_of_another_group_is_refused_whatever_its_generation(
    member: Guarded, other: GroupIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        reasons = {member.guard.refusal("n1", other) for _ in range(5)}
    (reason,) = reasons
    assert reason is not None
    assert reason.startswith(ANOTHER_GROUP)
    assert member.called == 0  # its log tells whether its group has grown
    assert (member.failure, member.adopted) == (None, 0)
    (line,) = caplog.messages
    assert line.startswith("refused peer n1: group g")


def test_the_caller_is_told_in_one_line_too(
    member: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            member.guard.refused("n1", ANOTHER_GROUP + "began with others")
            member.guard.refused("n1", "there is no member of group g here")
    assert caplog.messages == ["peer n1 refuses this member: another group: began with others"]


def test_callers_of_many_names_fill_neither_log_nor_memory(
    member: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    other = GroupIdentity(Generation(), voters_sum(["n0"]), "")
    with caplog.at_level(logging.WARNING):
        for number in range(3 * MAX_TOLD):
            assert member.guard.refusal(f"s{number}", other) is not None
    assert len(caplog.messages) == MAX_TOLD


def test_two_recoveries_of_one_folder_refuse_each_other_and_both_live(tmp_path: Path) -> None:
    members = []
    for name, mark in (("a", A), ("b", B)):
        folder = tmp_path / name / "dledger-n0"
        folder.mkdir(parents=True)
        GenerationFile(OsDisk(), str(folder)).set(Generation(1, mark))
        members.append(Guarded(tmp_path / name, lives=True))
    first, second = members
    for own, other in ((first, second), (second, first)):
        reason = own.guard.refusal("n1", other.guard.identity.of_group)
        assert reason is not None
        assert "was recovered twice" in reason
        other.guard.refused("n0", reason)
        assert own.guard.refusal("n1", own.guard.identity.of_group) is None
    for guarded in members:
        assert (guarded.failure, guarded.adopted) == (None, 0)
        guarded.opened.store.close()


def test_an_empty_member_takes_over_the_recovery_that_calls_it(empty: Guarded) -> None:
    for newer in (Generation(1, A), Generation(1, B), Generation(2, A)):
        reason = empty.guard.refusal("n1", GroupIdentity(newer))
        assert reason is not None
        assert "ask again" in reason
        assert empty.guard.generation == newer
        assert empty.guard.refusal("n1", GroupIdentity(newer)) is None
    assert empty.adopted == 3


def test_a_member_of_an_older_generation_stops_and_names_the_newer_one(member: Guarded) -> None:
    member.guard.refusal("n1", GroupIdentity(Generation(2, A), OURS, BIRTH.hex()))
    assert isinstance(member.failure, Superseded)
    assert (member.failure.own, member.failure.newer) == (0, 2)
