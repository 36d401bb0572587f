"""A task that works in rounds misses nothing that comes while it works."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from dledger.wake_up import WakeUp

ROUNDS = 3
# When work comes: before the task waits, while it waits, and at each moment of its round.
MOMENTS = ("before it waits", "while it waits", "at the beginning of a round", "within a round")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_what_comes_at_any_moment_has_a_round_after_it(
    moment: str, autojump_clock: MockClock
) -> None:
    wake_up = WakeUp()
    came = seen = 0

    def come(at: str) -> None:
        nonlocal came
        if at == moment and came < ROUNDS:
            came += 1
            wake_up.set()

    async def work() -> None:
        nonlocal seen
        while True:
            come("before it waits")
            await wake_up.wait()
            come("at the beginning of a round")
            seen = came
            await trio.sleep(1)
            come("within a round")

    async with trio.open_nursery() as nursery:
        if moment != "while it waits":
            wake_up.set()
        nursery.start_soon(work)
        for _ in range(ROUNDS):
            await trio.testing.wait_all_tasks_blocked()
            come("while it waits")
            await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert came == seen == ROUNDS


async def test_one_wake_up_is_one_round(autojump_clock: MockClock) -> None:
    wake_up = WakeUp()
    wake_up.set()
    wake_up.set()
    await wake_up.wait()
    with trio.move_on_after(1) as pause:
        await wake_up.wait()
    assert pause.cancelled_caught


@pytest.mark.parametrize("waits", [True, False])
async def test_a_wake_up_whose_wait_is_cancelled_is_kept(
    waits: bool, autojump_clock: MockClock
) -> None:
    wake_up = WakeUp()
    ended: list[bool] = []

    async def wait(scope: trio.CancelScope) -> None:
        with scope:
            await wake_up.wait()
        ended.append(scope.cancelled_caught)

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        if not waits:
            scope.cancel()
            wake_up.set()
        nursery.start_soon(wait, scope)
        await trio.testing.wait_all_tasks_blocked()
        if waits:
            scope.cancel()
            wake_up.set()
    assert ended == [True]
    with trio.fail_after(1):
        await wake_up.wait()


async def test_a_second_task_is_told_that_the_wake_up_is_another_ones() -> None:
    wake_up = WakeUp()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wake_up.wait)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await wake_up.wait()
        wake_up.set()
