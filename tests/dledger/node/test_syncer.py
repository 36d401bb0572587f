"""Where a sync runs: while the loop waits for it, unless the disk is slow or hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import trio
from trio.testing import MockClock

from dledger.core.hard_state import HardState
from dledger.errors import DiskFailed, DLedgerError, InvariantBroken
from dledger.node.syncer import QUICK_SYNC_S, Syncer
from dledger.node.tally import Tally
from dledger.serving.sync_threads import MAX_IDLE_THREADS, DiskThreads
from dledger.store.log_store import SyncWork


class Work:
    """A sync that takes as long as it is told to on a clock of its own."""

    index = 7
    epoch = 0
    hard_state: HardState | None = None
    now = 0.0

    def __init__(self, sync_s: float, error: Exception | None = None) -> None:
        self._sync_s = sync_s
        self._error = error
        self.thread = ""

    def run(self) -> None:
        """Let the time pass."""
        Work.now += self._sync_s
        self.thread = threading.current_thread().name
        if self._error is not None:
            raise self._error


class HungWork(Work):
    """A sync that does not end before it is told to."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.may_end = threading.Event()

    def run(self) -> None:
        """Hang."""
        self.may_end.wait()
        super().run()


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
    yield Syncer(reports.done, threads, Tally())
    threads.shutdown()


def quick(syncer: Syncer) -> Syncer:
    while not syncer.is_quick:
        syncer.run(Work(QUICK_SYNC_S / 10), leads=True)
    return syncer


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
    work = Work(1.0)
    assert quick(syncer).run(work, leads=True) == (work, None)
    assert not syncer.is_quick


async def test_a_follower_that_is_alone_in_its_loop_syncs_a_quick_disk_there(
    syncer: Syncer,
) -> None:
    here, work = threading.current_thread().name, Work(0.0)
    quick(syncer).run(work, leads=False)
    assert work.thread == here


async def test_a_leader_syncs_in_a_thread_and_so_does_a_follower_with_a_neighbour(
    syncer: Syncer, reports: Reports
) -> None:
    here, work = threading.current_thread().name, Work(0.0)
    quick(syncer).run(work, leads=True)
    assert work.thread != here
    neighbour = Syncer(reports.done, DiskThreads(), Tally())
    syncer.run(work, leads=False)
    assert work.thread != here
    assert await neighbour.close(lambda: None, 30.0)
    syncer.run(work, leads=False)
    assert work.thread == here


async def test_a_sync_that_hangs_lets_the_loop_go_on_and_is_reported_when_it_ends(
    syncer: Syncer, reports: Reports
) -> None:
    work = HungWork()
    assert quick(syncer).run(work, leads=True) is None  # on the loop it would hang for ever
    assert syncer.busy
    await trio.lowlevel.checkpoint()
    assert not reports.ended
    work.may_end.set()
    await reports.arrived.wait()
    assert reports.ended == [(work, None)]
    assert not syncer.busy
    assert not syncer.is_quick


async def test_a_disk_that_recovers_is_quick_again(syncer: Syncer) -> None:
    syncer.run(Work(1.0), leads=True)
    syncs = 0
    while not syncer.is_quick:
        syncer.run(Work(QUICK_SYNC_S / 10), leads=True)
        syncs += 1
    assert 10 < syncs < 100


@pytest.mark.parametrize("raised", [DiskFailed("sync", "data", OSError(5, "no")), KeyError("x")])
async def test_a_failed_sync_is_told_wherever_it_ran(
    syncer: Syncer, reports: Reports, raised: Exception
) -> None:
    work = Work(0.0, raised)
    ended = syncer.run(work, leads=True)
    assert ended is not None
    assert ended.error is raised or isinstance(ended.error, InvariantBroken)
    syncer.start(work)
    assert syncer.busy
    await reports.arrived.wait()
    ((reported, error),) = reports.ended
    assert reported is work
    assert type(error) is type(ended.error)
    assert not syncer.busy


async def test_what_closes_the_store_waits_for_a_sync_that_hangs_and_the_loop_does_not(
    syncer: Syncer, autojump_clock: MockClock
) -> None:
    work, closed = HungWork(), threading.Event()
    assert quick(syncer).run(work, leads=True) is None
    assert not await syncer.close(closed.set, 30.0)
    assert not closed.is_set()
    work.may_end.set()
    await trio.to_thread.run_sync(closed.wait)


async def test_what_closing_the_store_raises_is_told(syncer: Syncer) -> None:
    def fails() -> None:
        raise DiskFailed("sync", "data", OSError(5, "no disk"))

    with pytest.raises(DiskFailed):
        await syncer.close(fails, 30.0)


def test_syncs_that_hang_leave_threads_for_all_others() -> None:
    threads, hold, ended = DiskThreads(), threading.Event(), threading.Event()
    for _ in range(3 * MAX_IDLE_THREADS):
        threads.start(hold.wait)  # type: ignore[arg-type]
    threads.start(ended.set)
    assert ended.wait(30.0)
    hold.set()
    threads.shutdown()


def test_one_thread_takes_all_syncs_that_the_loop_waits_for() -> None:
    threads, names = DiskThreads(), set()
    for _ in range(100):
        assert threads.run(lambda: names.add(threading.current_thread().ident), lambda: None, 30.0)
    assert len(names) == 1
    threads.shutdown()


def test_threads_end_with_their_host() -> None:
    threads, hold = DiskThreads(), threading.Event()
    started: list[threading.Thread] = []

    def sync() -> None:
        started.append(threading.current_thread())
        hold.wait()

    assert threads.run(lambda: started.append(threading.current_thread()), lambda: None, 30.0)
    threads.start(sync)
    threads.shutdown()
    hold.set()
    while len(started) < 2:
        threading.Event().wait(0.001)
    for thread in started:
        thread.join(30.0)
        assert not thread.is_alive()


def test_a_process_can_end_while_a_sync_hangs() -> None:
    program = (
        "import threading\n"
        "from dledger.serving.sync_threads import DiskThreads\n"
        "DiskThreads().start(threading.Event().wait)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30.0)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_sync_that_ends_after_its_loop_still_lets_go_of_the_store(is_closed: bool) -> None:
    work, released = HungWork(), threading.Event()
    ended = threading.Event()

    class Threads(ThreadsByWork):
        def start(self, sync: Callable[[], None]) -> None:
            def noted() -> None:
                sync()
                ended.set()

            super().start(noted)

    async def life() -> None:
        syncer = Syncer(Reports().done, Threads(), Tally())
        syncer.start(work)
        if is_closed:
            assert not await syncer.close(released.set, patience_s=0.0)

    trio.run(life)
    assert not released.is_set()
    work.may_end.set()
    assert ended.wait(10)  # else it raised in its thread
    assert released.is_set() is is_closed
