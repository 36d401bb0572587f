"""What holds the event loop is counted, and told with a name."""

import logging
import time

import pytest
import trio
import trio.lowlevel

from dledger.loop_watch import HOLD_S, LoopWatch, watched_loop


def hold_the_loop(seconds: float) -> None:
    """Compute, as a step that is too long does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def test_a_long_step_is_counted_and_told_with_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), watched_loop() as watch:
        await trio.lowlevel.checkpoint()
        before = watch.holds, watch.held_s
        hold_the_loop(4 * HOLD_S)
        await trio.lowlevel.checkpoint()
    assert watch.holds == before[0] + 1
    assert watch.held_s >= before[1] + 4 * HOLD_S
    assert any("hold_the_loop" in record.getMessage() for record in caplog.records)


async def test_waiting_is_no_hold() -> None:
    watch = LoopWatch()
    watch.start()
    await trio.sleep(2 * HOLD_S)
    watch.stop()
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
