"""Groups of brokers in virtual time: no seed breaks a promise, planted bugs are found."""

import io
import os
import subprocess
import sys

import pytest

from broker.topics.names import FIRST_TOPICS
from broker.topics.settings import topic_members
from dledger.entry import HEADER_BYTES, Entry, Magic
from jepsen_like.chance import Chance
from jepsen_like.simulation.broker.broker_simulation import EXPECTED_OF_BROKERS
from jepsen_like.simulation.broker.log_model import LogModel
from jepsen_like.simulation.broker.queue_disk import VirtualQueueDisk
from jepsen_like.simulation.broker.reference import Reference
from jepsen_like.simulation.campaign import Plan, run_campaign, trace_seed
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk

TIER = "brokers"
LOSES_ALL = CrashStyle(keep=0.0, torn=0.0, names_in_order=False)


@pytest.mark.feature("F24")
def test_no_seed_breaks_a_promise_of_a_broker() -> None:
    result = run_campaign(Plan(first_seed=21, seeds=2, fault_s=5.0, tier=TIER), jobs=1)
    assert result.broken is None
    counts = result.coverage.counts()
    for reached in (
        "acknowledged messages",
        "snapshots installed",
        "snapshots restored at the start",
    ):
        assert counts[reached] > 0
    assert counts["queues made again from the log"] > 0
    assert counts["kills"] + counts["power cuts"] > 0


@pytest.mark.long
def test_a_campaign_breaks_no_promise_of_a_broker_and_reaches_every_fault() -> None:
    result = run_campaign(Plan(first_seed=100_000, seeds=400, tier=TIER), jobs=2)
    assert result.broken is None
    assert result.coverage.missing(EXPECTED_OF_BROKERS) == []


# Power cuts, and what they take depends on the order in which files are synced.
REPEATED = Plan(
    21, 1, fault_s=2.0, tier=TIER, seeded_bug="mended-files-believed", aimed=True, is_planted=False
)


def told_by(seed: int) -> list[str]:
    sink = io.StringIO()
    trace_seed(REPEATED, seed, sink)
    return sink.getvalue().splitlines()


@pytest.fixture(scope="module")
def told_before() -> list[str]:
    return told_by(21)


def test_the_same_seed_makes_the_same_run_of_brokers(told_before: list[str]) -> None:
    assert told_by(21) == told_before
    assert any("power" in line for line in told_before)


def test_a_run_of_brokers_does_not_depend_on_the_order_of_sets(told_before: list[str]) -> None:
    program = f"from {__name__} import told_by; print(*told_by(21), sep='\\n')"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == told_before


# --- the disk of the consume queues ---------------------------------------------------------------


def disk_with_a_file(*synced: str) -> VirtualDisk:
    """A disk on which /r/T/0/f was written, its bytes synced, and then these folders."""
    disk = VirtualDisk(Chance(7, "disk"))
    files = VirtualQueueDisk(disk, "/r")
    files.make_folder("/r/T/0")
    descriptor = files.open("/r/T/0/f", True)
    files.write(descriptor, b"units", 0)
    files.close(descriptor)
    files.sync("/r/T/0/f")
    for folder in synced:
        files.sync(folder)
    return disk


@pytest.mark.parametrize(
    ("synced", "survives"),
    [
        (("/r/T/0", "/r/T", "/r"), True),
        (("/r/T/0", "/r/T"), False),
        (("/r/T/0", "/r"), False),
        (("/r/T", "/r"), False),
    ],
)
def test_a_file_survives_a_power_cut_only_with_all_folders_above_it(
    synced: tuple[str, ...], survives: bool
) -> None:
    disk = disk_with_a_file(*synced)
    disk.cut_power(LOSES_ALL)
    files = VirtualQueueDisk(disk, "/r")
    assert files.content("/r/T/0/f") == (b"units" if survives else b"")
    if not survives:
        files.make_folder("/r/T/0")  # the folder is new, and empty
        assert files.sizes("/r/T/0") == {}


def test_a_removed_folder_is_back_after_a_power_cut_until_its_parent_is_synced() -> None:
    for syncs in (False, True):
        disk = disk_with_a_file("/r/T/0", "/r/T", "/r")
        files = VirtualQueueDisk(disk, "/r")
        files.remove_folder("/r/T")
        assert files.folders("/r") == []
        if syncs:
            files.sync("/r")
        disk.cut_power(LOSES_ALL)
        assert VirtualQueueDisk(disk, "/r").content("/r/T/0/f") == (b"" if syncs else b"units")


# --- the reference --------------------------------------------------------------------------------


def test_a_fold_that_differs_from_the_model_is_a_broken_promise() -> None:
    body = bytes.fromhex("0000000c444c420193") + b"\x02\xa1T"  # DeleteTopic without its time
    entries = [Entry(0, 1, 0, Magic.NORMAL, body + b"\x09")]
    assert entries[0].body_pos == HEADER_BYTES
    first = {name: topic_members(config) for name, config in FIRST_TOPICS.items()}
    model = LogModel(first, set(), 3, True, lambda *_: None, lambda *_: None)
    model.topics["U"] = []  # the broker knows of none
    reference = Reference(entries, model)
    with pytest.raises(InvariantViolated, match="topics after entry 0"):
        reference.advance(0)
