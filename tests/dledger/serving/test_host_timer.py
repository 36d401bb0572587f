"""One alarm clock for many groups, in virtual time."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from dledger.serving.host_timer import SOON_S, HostTimer

NEVER = float("inf")


class Flushes:
    """Counts the passes of a timer."""

    def __init__(self) -> None:
        self.collecting = False
        self.passes = 0

    def flush(self) -> None:
        assert self.collecting
        self.collecting = False
        self.passes += 1


class Group:
    """Has a deadline, and does what it is told when that has passed."""

    def __init__(self, timer: HostTimer, flushes: Flushes) -> None:
        self.timer = timer
        self.flushes = flushes
        self.deadline = NEVER
        self.alarm_at = NEVER
        self.turned_at: list[float] = []
        self.looked = 0
        self.then: Callable[[], None] = lambda: None
        self.failed: Exception | None = None

    def due(self, deadline: float) -> None:
        self.deadline = deadline
        self.timer.move(self, deadline)

    def alarm(self, now: float) -> None:
        assert self.flushes.collecting
        self.looked += 1
        if now >= self.deadline:
            self.deadline = NEVER
            self.turned_at.append(now)
            self.then()
        self.timer.move(self, self.deadline)

    def fail(self, error: Exception) -> None:
        self.failed = error


class Running:
    """A timer that runs, and what it has to do with."""

    def __init__(self) -> None:
        self.flushes = Flushes()
        self.timer = HostTimer(self.flushes)
        self.began = trio.current_time()

    def group(self) -> Group:
        return Group(self.timer, self.flushes)


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    made = Running()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.timer.run)
        yield made
        nursery.cancel_scope.cancel()


async def test_deadlines_of_one_moment_share_a_pass(autojump_clock: MockClock) -> None:
    async with running() as host:
        groups = [host.group() for _ in range(100)]
        for group in groups:
            group.due(host.began + 1.0)
        await trio.sleep(2.0)
        assert [group.turned_at for group in groups] == [[host.began + 1.0]] * 100
        assert host.flushes.passes == 1


async def test_each_deadline_is_met_at_its_time_in_whatever_order_they_came(
    autojump_clock: MockClock,
) -> None:
    async with running() as host:
        late, soon = host.group(), host.group()
        late.due(host.began + 3.0)
        await trio.sleep(0.5)
        soon.due(host.began + 1.0)
        await trio.sleep(5.0)
        assert soon.turned_at == [host.began + 1.0]
        assert late.turned_at == [host.began + 3.0]


async def test_a_deadline_that_moves_forward_is_met_once(autojump_clock: MockClock) -> None:
    async with running() as host:
        group = host.group()
        for after in (3.0, 2.0, 1.0):
            group.due(host.began + after)
        await trio.sleep(5.0)
        assert group.turned_at == [host.began + 1.0]
        assert group.looked == 1


async def test_a_deadline_that_moves_back_costs_nothing_until_the_old_one_comes(
    autojump_clock: MockClock,
) -> None:
    async with running() as host:
        group = host.group()
        group.due(host.began + 1.0)
        for beat in range(9):
            await trio.sleep(0.1)
            group.due(host.began + 0.1 * beat + 1.0)
        assert group.looked == 0
        await trio.sleep(5.0)
        assert group.turned_at == [host.began + 1.8]
        assert group.looked == 2


async def test_a_deadline_that_passes_while_another_group_turns_is_met(
    autojump_clock: MockClock,
) -> None:
    async with running() as host:
        first, second = host.group(), host.group()
        first.then = lambda: second.due(host.began + 0.5)
        first.due(host.began + 1.0)
        await trio.sleep(2.0)
        assert second.turned_at == [host.began + 1.0]


async def test_a_group_that_is_always_due_does_not_keep_the_others_from_running(
    autojump_clock: MockClock,
) -> None:
    async with running() as host:
        greedy, other = host.group(), host.group()
        greedy.then = lambda: greedy.due(trio.current_time())
        greedy.due(host.began)
        other.due(host.began)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert other.turned_at == [host.began]
        assert len(greedy.turned_at) > 1


async def test_what_is_due_soon_is_looked_at_on_the_way_and_turned_at_its_time(
    autojump_clock: MockClock,
) -> None:
    async with running() as host:
        now, soon = host.group(), host.group()
        now.due(host.began + 1.0)
        soon.due(host.began + 1.0 + SOON_S / 2)
        soon.deadline = host.began + 1.9  # put off since, as an election is by a heartbeat
        await trio.sleep(1.5)
        assert host.flushes.passes == 1
        await trio.sleep(1.0)
        assert soon.turned_at == [host.began + 1.9]


async def test_what_one_group_raises_ends_that_one_and_the_others_turn(
    autojump_clock: MockClock,
) -> None:
    async with running() as host:
        broken, other = host.group(), host.group()
        error = KeyError("n1")

        def raises() -> None:
            raise error

        broken.then = raises
        broken.due(host.began + 1.0)
        other.due(host.began + 1.01)
        await trio.sleep(2.0)
        assert broken.failed is error
        assert other.turned_at == [host.began + 1.01] or other.looked
        other.due(host.began + 3.0)
        await trio.sleep(2.0)
        assert other.turned_at[-1] == host.began + 3.0
        assert not host.flushes.collecting


async def test_what_arrived_during_a_pause_is_read_before_any_deadline_is_looked_at(
    mock_clock: MockClock,
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for _ in range(20):  # the order of tasks that wake together is random
        done: list[str] = []
        async with running() as timer, trio.open_nursery() as nursery:
            group = timer.group()
            group.due(trio.current_time() + 0.6)
            group.then = lambda done=done: done.append("deadline")  # type: ignore[misc]

            async def read(done: list[str] = done) -> None:
                await trio.lowlevel.wait_readable(ours)
                ours.recv(100)
                done.append("message")

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            theirs.send(b"a heartbeat")
            mock_clock.jump(5.0)
            await trio.testing.wait_all_tasks_blocked()
        assert done == ["message", "deadline"]
    ours.close()
    theirs.close()
