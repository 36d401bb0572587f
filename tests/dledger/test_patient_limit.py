"""A process that was paused until the limit of a wait was over still takes the answer."""

from __future__ import annotations

import socket

import trio
from trio.testing import MockClock

from dledger.patient_limit import MOMENT_S, patient_limit


class Asking:
    """Waits for an answer that another task reads from a socket, for 10 s."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self._answered = trio.Event()
        self.ended = trio.Event()
        self.answered = False
        self.ended_at = 0.0

    async def read(self) -> None:
        await trio.lowlevel.wait_readable(self.ours)
        self._answered.set()

    async def ask(self) -> None:
        with patient_limit(10.0) as limit:
            await self._answered.wait()
        self.answered = not limit.cancelled_caught
        self.ended_at = trio.current_time()
        self.ended.set()

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


async def asked(clock: MockClock, paused_s: float, *, answers: bool) -> Asking:
    """One that was paused for so long after it had asked."""
    asking = Asking()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.read)
        nursery.start_soon(asking.ask)
        await trio.testing.wait_all_tasks_blocked()
        if answers:
            asking.theirs.send(b"answer")
        clock.jump(paused_s)
        clock.autojump_threshold = 0.01
        await asking.ended.wait()
        nursery.cancel_scope.cancel()
    asking.close()
    return asking


async def test_an_answer_that_came_during_the_pause_counts(mock_clock: MockClock) -> None:
    for paused_s in (1.0, 10.1, 60.0):
        asking = await asked(mock_clock, paused_s, answers=True)
        assert asking.answered, paused_s
        mock_clock.autojump_threshold = float("inf")


async def test_without_an_answer_it_ends_a_moment_after_the_pause(mock_clock: MockClock) -> None:
    began = trio.current_time()
    asking = await asked(mock_clock, 60.0, answers=False)
    assert not asking.answered
    assert 60.0 < asking.ended_at - began <= 60.0 + MOMENT_S + 0.1


async def test_who_is_on_time_waits_no_longer_than_the_limit(mock_clock: MockClock) -> None:
    began = trio.current_time()
    asking = await asked(mock_clock, 1.0, answers=False)
    assert not asking.answered
    assert 10.0 <= asking.ended_at - began < 10.02
