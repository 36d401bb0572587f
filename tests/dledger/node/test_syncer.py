"""Where a sync runs: beside the event loop, unless the disk is quick."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import trio

from dledger.core.hard_state import HardState
from dledger.errors import DiskFailed, DLedgerError
from dledger.node.syncer import QUICK_SYNC_S, Syncer
from dledger.node.tally import Tally
from dledger.serving.sync_threads import DiskThreads
from dledger.store.log_store import SyncWork


class Work:
    """A sync that takes as long as it is told to on a clock of its own."""

    index = 7
    epoch = 0
    hard_state: HardState | None = None
    now = 0.0

    def __init__(self, seconds: float, error: DLedgerError | None = None) -> None:
        self._seconds = seconds
        self._error = error
        self.thread = ""

    def run(self) -> None:
        """Let the time pass."""
        Work.now += self._seconds
        self.thread = threading.current_thread().name
        if self._error is not None:
            raise self._error


class Reports:
    """What a syncer reported."""

    def __init__(self) -> None:
        self.ended: list[tuple[SyncWork, DLedgerError | None]] = []
        self.arrived = trio.Event()

    def done(self, work: SyncWork, error: DLedgerError | None) -> None:
        """Note it."""
        self.ended.append((work, error))
        self.arrived.set()


class ThreadsByWork(DiskThreads):
    """Real threads, on the clock of the works."""

    def clock(self) -> float:
        """The time that the works took."""
        return Work.now


@pytest.fixture
async def reports() -> Reports:
    """No reports yet."""
    return Reports()


@pytest.fixture
async def syncer(reports: Reports) -> Iterator[Syncer]:  # type: ignore[misc]
    """A syncer on the clock of the works."""
    threads = ThreadsByWork()
    made = Syncer(reports.done, threads, Tally())
    yield made
    made.close()
    threads.shutdown()


async def test_a_disk_is_slow_until_it_has_shown_that_it_is_quick(
    syncer: Syncer, reports: Reports
) -> None:
    assert not syncer.is_quick
    work = Work(QUICK_SYNC_S / 10)
    syncer.start(work)
    await reports.arrived.wait()
    assert work.thread.startswith("dledger-syncer")
    assert reports.ended == [(work, None)]
    assert syncer.is_quick


async def test_a_disk_that_turns_slow_holds_the_loop_up_once(syncer: Syncer) -> None:
    while not syncer.is_quick:
        syncer.run(Work(QUICK_SYNC_S / 10))
    assert syncer.run(Work(1.0)) is None
    assert not syncer.is_quick


async def test_a_disk_that_recovers_is_quick_again(syncer: Syncer) -> None:
    syncer.run(Work(1.0))
    syncs = 0
    while not syncer.is_quick:
        syncer.run(Work(QUICK_SYNC_S / 10))
        syncs += 1
    assert 10 < syncs < 100


async def test_a_failed_sync_is_told_wherever_it_ran(syncer: Syncer, reports: Reports) -> None:
    error = DiskFailed("sync", "data", OSError(5, "no disk"))
    assert syncer.run(Work(0.0, error)) is error
    work = Work(0.0, error)
    syncer.start(work)
    assert syncer.busy
    await reports.arrived.wait()
    assert reports.ended == [(work, error)]
    assert not syncer.busy
