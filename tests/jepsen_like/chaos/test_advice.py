"""What the harness does with the last words of a member."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from dledger import errors
from dledger.errors import (
    BirthUnreadable,
    ConfigurationLost,
    DataFolderMismatch,
    DiskFailed,
    Fatal,
    FirstVotersDiffer,
    HardStateLost,
    LogCorrupt,
    NodeFailed,
    SnapshotLost,
)
from dledger.system_refusals import REFUSALS, Kind
from jepsen_like.chaos.members.advice import Remedy, is_bug, last_words, remedies

DISK_FULL = OSError(28, "No space left on device")


def test_the_harness_knows_what_to_do_when_any_resource_of_a_disk_is_refused() -> None:
    for number, row in REFUSALS.items():
        found = remedies(str(DiskFailed("write", "data/0", OSError(number, "no"))))
        of_disk = row.kind in (Kind.ROOM, Kind.BROKEN_DISK, Kind.WRITABLE_DISK)
        if of_disk and "network disk" not in row.meaning:
            assert found == (Remedy.FREE_DISK,), row


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (LogCorrupt("data/0", 48, "the sum is wrong"), Remedy.REPAIR),
        (HardStateLost("hardstate"), Remedy.REJOIN),
        (DiskFailed("write", "data/0", DISK_FULL), Remedy.FREE_DISK),
        (SnapshotLost("snapshots", 5, ()), Remedy.EMPTY_FOLDER),
        (ConfigurationLost(5, "broken"), Remedy.EMPTY_FOLDER),
        (BirthUnreadable("birth"), Remedy.EMPTY_FOLDER),
        (DataFolderMismatch("n0", "n1", "n0"), Remedy.EMPTY_FOLDER),
        (FirstVotersDiffer("birth", "g", (), ("n0",)), Remedy.JOIN),
        (NodeFailed(ValueError("x")), Remedy.START),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Fatal) else "",
)
def test_what_an_error_advises_is_found_in_its_words(error: Fatal, first: Remedy) -> None:
    assert remedies(str(error))[0] is first


def fatal_errors() -> Iterator[type[Fatal]]:
    for found in vars(errors).values():
        if inspect.isclass(found) and issubclass(found, Fatal):
            yield found


def test_an_error_that_is_repaired_in_vain_is_rejoined() -> None:
    assert remedies(str(LogCorrupt("f", 0, "p"))) == (Remedy.REPAIR, Remedy.REJOIN)


def test_words_without_advice_have_no_remedy() -> None:
    assert remedies("something else") == (Remedy.NONE,)
    assert remedies("") == (Remedy.NONE,)


def test_the_last_words_are_those_of_the_line_that_says_why() -> None:
    log = (
        "2026-01-01T00:00:00Z n0 INFO leader\n2026-01-01T00:00:01Z n0 CRITICAL stopped: X: why\n\n"
    )
    assert last_words(log) == "X: why"
    assert last_words("one\ntwo\n") == "two"
    assert last_words("\n") == ""


def test_errors_that_must_never_be_are_told_apart() -> None:
    assert is_bug("stopped: InvariantBroken: committed entries truncated")
    assert is_bug("Traceback (most recent call last):\n  ...\nValueError: x")
    assert not is_bug(f"stopped: LogCorrupt: {LogCorrupt('f', 0, 'p')}")
    assert len(list(fatal_errors())) > 15
