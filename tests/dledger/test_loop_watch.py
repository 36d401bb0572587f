"""What holds the event loop is counted, and told with a name."""

import logging
import threading

import pytest

from dledger.loop_watch import HOLD_S, LoopWatch, watched_loop


@pytest.fixture(autouse=True)
def _loud(caplog: pytest.LogCaptureFixture) -> None:
    """All other tests have it quiet."""
    caplog.set_level(logging.WARNING, "dledger.loop_watch")


class Clocks:
    """The clocks of a watch, which the test moves.

    Attributes:
        now_s: of the wall clock.
        computed: of the loop's processor time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = self.computed = 100.0
        for name in ("perf_counter", "monotonic"):
            monkeypatch.setattr(f"dledger.loop_watch.time.{name}", lambda: self.now_s)
        monkeypatch.setattr("dledger.loop_watch.time.thread_time", lambda: self.computed)


def hold_the_loop(watch: LoopWatch, clocks: Clocks) -> None:
    """Compute for long, and be seen."""
    watch.after_io_wait(0)
    clocks.now_s += 4 * HOLD_S
    clocks.computed += 4 * HOLD_S
    watch.look()
    watch.before_io_wait(0)


def test_a_long_step_is_counted_and_told_with_its_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, clocks = LoopWatch(), Clocks(monkeypatch)
    hold_the_loop(watch, clocks)
    assert watch.holds == 1
    assert watch.held_s == pytest.approx(4 * HOLD_S)
    assert any("hold_the_loop" in record.getMessage() for record in caplog.records)


async def test_a_thread_looks_while_a_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()
    monkeypatch.setattr(LoopWatch, "look", lambda _watch: looked.set())
    with watched_loop():
        assert looked.wait(10)


def test_waiting_is_no_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, clocks = LoopWatch(), Clocks(monkeypatch)
    watch.before_io_wait(0)
    clocks.now_s += 2 * HOLD_S
    watch.after_io_wait(0)
    watch.before_io_wait(0)
    assert watch.holds == 0


def test_one_name_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("dledger.loop_watch.time.monotonic", lambda: now[0])
    monkeypatch.setattr("dledger.loop_watch.time.perf_counter", lambda: now[0])
    watch = LoopWatch()
    for _ in range(5):
        watch.after_io_wait(0)
        now[0] += 1
        watch.before_io_wait(0)
    assert (watch.holds, watch.held_s, len(caplog.records)) == (5, 5.0, 1)
    now[0] += 60
    watch.after_io_wait(0)
    now[0] += 1
    watch.before_io_wait(0)
    assert len(caplog.records) == 2
    assert "4 times before" in caplog.records[1].getMessage()


async def test_blocks_that_overlap_share_one_watch() -> None:
    with watched_loop() as one:
        with watched_loop() as two:
            assert two is one
        with watched_loop() as three:
            assert three is one
    with watched_loop() as four:
        assert four is not one
