"""The tasks of the key index, over an index that the test fills."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from broker.query.tasks import LOOK_S, IndexTasks


class Index:
    """Stands for the index and for what fills it: one step takes in all of the log."""

    def __init__(self) -> None:
        self.covered = self.log_end = 0
        self.unsynced = self.behind_bytes = 0
        self.is_sweeping = False

    def open(self) -> None: ...

    def begin(self) -> None: ...

    def close(self) -> None: ...

    def step(self, _units: int) -> bool:
        before, self.covered = self.covered, self.log_end
        return before < self.log_end


class Searches:
    """Notes when searches are answered."""

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.answered_at: list[float] = []
        self.on_added: Callable[[], None] = lambda: None

    def add(self, position: int) -> None:
        deadline = trio.current_time() + 5
        self.waiting.append(SimpleNamespace(position=position, deadline=deadline))
        self.on_added()

    def answering(self, _search: object) -> Iterator[None]:
        self.answered_at.append(trio.current_time())
        yield


@pytest.mark.parametrize("first", ["keep", "answer"])
async def test_an_index_at_rest_goes_on_at_once_for_the_first_search_and_for_each_other(
    first: str, autojump_clock: trio.testing.MockClock
) -> None:
    index, searches = Index(), Searches()
    node = SimpleNamespace(is_ready_leader=True)
    member = SimpleNamespace(machine=SimpleNamespace(queues=SimpleNamespace(damaged={})), node=node)
    parts: tuple[Any, ...] = index, index, searches, member, SimpleNamespace(kept_position=0)
    tasks = IndexTasks(*cast(Any, parts))
    async with trio.open_nursery() as nursery:
        for run in sorted((tasks.keep, tasks.answer), key=lambda run: run.__name__ != first):
            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 4):
            await trio.sleep(LOOK_S * 0.1)
            index.log_end = number
            searches.add(number)
            asked_at = trio.current_time()
            await trio.sleep(LOOK_S * 10)
            assert searches.answered_at[-1] - asked_at < LOOK_S / 10
        nursery.cancel_scope.cancel()
