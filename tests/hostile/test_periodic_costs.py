"""What features do by time, by the size of the state: the ticks and looks of all of them.

Counted are instructions, never time. Everything is due: clients are silent, messages have waited.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

import broker.server
from bench.costs.full_broker import FullBroker
from bench.costs.fullness import evenly_full
from bench.costs.loop_holds import Instructions
from broker.traffic.traffic import TRAFFIC, Counted
from tests.broker.one_broker import Clock, running_broker

FEW, MANY = 75, 300

# What may grow: a dictionary that is copied, and what is waited for meanwhile.
FEW_INSTRUCTIONS = 500

# Later than all that waits.
LATER_S = 100_000.0


class LateTrio(ModuleType):
    """trio, with a clock for the broker's features that only the test moves: nothing is over before
    it says so, however long a busy machine takes to fill the broker.
    """

    now = 0.0

    @property
    def lowlevel(self) -> SimpleNamespace:
        return SimpleNamespace(current_clock=lambda: self)

    def __getattr__(self, name: str) -> Any:
        return getattr(trio, name)

    def current_time(self) -> float:
        return self.now


class StepsOfWork(trio.abc.Instrument):
    """Notes the longest step of the work that features leave for later."""

    def __init__(self, counter: Instructions) -> None:
        self._counter = counter
        self._began = 0
        self.longest = 0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        self._began = self._counter.count

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.endswith("ClientWork.run"):
            self.longest = max(self.longest, self._counter.count - self._began)


async def cost_of(call: Callable[[], None]) -> int:
    """The instructions of the call, or of the longest step that follows."""
    await trio.testing.wait_all_tasks_blocked(0.01)
    counter = Instructions()
    with counter.counting():
        call()
    at_once = counter.count
    steps = StepsOfWork(counter)
    trio.lowlevel.add_instrument(steps)
    with counter.counting():
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked(0.01)
    trio.lowlevel.remove_instrument(steps)
    return max(at_once, steps.longest)


async def costs_with(folder: Path, count: int, late: LateTrio) -> dict[str, int]:
    """What each tick and each look costs with a state of so many of everything."""
    clock, late.now = Clock(), trio.current_time()
    costs: dict[str, int] = {}
    async with running_broker(folder, clock=clock) as (one, _nursery):
        await FullBroker(one, evenly_full(count)).fill()
        traffic = one.parts[TRAFFIC]
        for number in range(count):
            traffic._add(traffic.second, Counted.TOPIC_PUT_NUMS, f"t{number}", 1, 1)
        traffic._settle()  # what the last second brought is no size of the state
        # The broker's own clock asks for nothing meanwhile.
        one.requests.tick = one.requests.look_over = lambda: None  # type: ignore[method-assign]
        late.now, clock.now_ms = late.now + LATER_S, clock.now_ms + int(1000 * LATER_S)
        for service in one._services:
            for what in ("tick", "look_over"):
                call = getattr(service, what)
                if call.__name__ != "_nothing":
                    costs[f"{call.__module__} {call.__qualname__}"] = await cost_of(call)
    return costs


@pytest.mark.slow
async def test_nothing_that_is_done_by_time_holds_the_loop_by_the_size_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each step of work that is done in steps is seen by itself.
    monkeypatch.setattr("remoting.net.client_work.SLICE_S", 1e-9)
    monkeypatch.setattr("remoting.net.client_work.TURN_S", 0)
    # One look judges so many at most; there are more.
    monkeypatch.setattr("broker.transactions.checks._LOOKED_AT", 64)
    late = LateTrio("trio")
    monkeypatch.setattr(broker.server, "trio", late)
    few = await costs_with(tmp_path / "few", FEW, late)
    many = await costs_with(tmp_path / "many", MANY, late)
    for name, cost in few.items():
        print(f"{name}: {cost} to {many[name]}")
    assert few.keys() == many.keys()
    assert few["broker.pulls.processor PullProcessor.expire"] > FEW_INSTRUCTIONS  # they are over
    grown = {
        name: (cost, many[name])
        for name, cost in few.items()
        if many[name] > 1.5 * cost + FEW_INSTRUCTIONS
    }
    assert grown == {}
