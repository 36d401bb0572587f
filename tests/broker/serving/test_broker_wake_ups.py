"""Work that comes while a task works is done next, though the clock stands still.

Each row makes one task of a broker that waits for work, and has further work come in the middle of
what it does: the wake-up for that may be the last one for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.config import BrokerConfig
from broker.delay.feature import DeliveryTask
from broker.features import empty_state
from broker.serving.confirmed_reads import ConfirmedReads
from broker.serving.registrar import Registrar
from remoting.net.address import Address
from tests.broker.retention.keeper_alone import keeper_alone
from tests.broker.untimed import AtOnce

ROUNDS = 4


class Work:
    """Comes in rounds, each in the middle of the one before.

    Attributes:
        came: how many rounds have come.
        done: how many are done.
    """

    def __init__(self) -> None:
        self.came = self.done = 0
        self.bring: Callable[[], None] = lambda: None

    def come(self) -> None:
        """A round comes, if any is left: the task is told."""
        if self.came < ROUNDS:
            self.came += 1
            self.bring()

    def do(self) -> None:
        """The task does all that has come, and one more comes before it is done with that."""
        self.done = self.came
        self.come()


Task = Callable[[], Awaitable[object]]


def deliveries(work: Work, _folder: Path) -> Task:
    class Deliveries:
        on_sooner: Callable[[], None]

        def deliver(self) -> float:
            work.do()
            return 1.0

    waiting = Deliveries()
    task = DeliveryTask(cast(Any, waiting))
    work.bring = waiting.on_sooner
    return task.run


def reads(work: Work, _folder: Path) -> Task:
    async def read() -> int:
        await trio.lowlevel.checkpoint()
        work.come()
        return 1

    confirmed = ConfirmedReads(read, 100, cast(Any, AtOnce()))

    def done(_refusal: object) -> None:
        work.done += 1

    work.bring = lambda: confirmed.add(done)
    return confirmed.run


def registrations(work: Work, _folder: Path) -> Task:
    def registration(_term: int) -> Any:
        work.come()
        raise LookupError

    def led_term() -> int | None:
        work.come()
        return None

    registrar = Registrar(
        client=cast(Any, SimpleNamespace(is_connected=lambda _: True)),
        config=BrokerConfig(
            group="broker",
            node_id="n0",
            peers={},
            listen=Address("127.0.0.1", 2),
            nameservers=("localhost:1",),
            directory=Path("unused"),
        ),
        registration=registration,
        led_term=led_term,
    )

    def done() -> None:
        work.done += 1

    work.bring = lambda: registrar.announce(done)
    return registrar.run


def retention(work: Work, folder: Path) -> Task:
    def policy() -> Any:
        work.come()
        return SimpleNamespace(refuses=lambda _used: False)

    def done() -> None:
        work.done += 1

    queues = SimpleNamespace(keys=list, damaged=False)
    machine = SimpleNamespace(state=empty_state(), queues=queues)
    keeper = keeper_alone(folder, machine, SimpleNamespace(disk_short=None), policy=policy)
    work.bring = lambda: keeper.look_soon(done, drops=False)
    return keeper.run


@pytest.mark.parametrize("make", [deliveries, reads, registrations, retention])
async def test_work_that_comes_while_a_task_works_is_done_next(
    make: Callable[[Work, Path], Task], tmp_path: Path, mock_clock: MockClock
) -> None:
    assert mock_clock.rate == 0
    work = Work()
    task = make(work, tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task)
        for _ in range(ROUNDS):
            await wait_all_tasks_blocked(0.02)
            assert work.done == work.came
            work.come()
        await wait_all_tasks_blocked(0.02)
        assert work.done == work.came == ROUNDS
        nursery.cancel_scope.cancel()
