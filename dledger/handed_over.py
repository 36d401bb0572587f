"""Hands appends from other threads over to a node's loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from dledger.call_future import CallFuture
from dledger.entry import Body
from dledger.errors import Rejected
from dledger.loop_thread import LoopThread, answer
from dledger.node.node import Node
from dledger.waits.pending_appends import Appended, Outcome

# The node's own limits apply to what it has taken; this one bounds the memory if threads submit
# faster than the loop takes.
MAX_HANDED_OVER = 100_000


class TooManyCalls(Rejected):
    """Other threads hand over appends faster than the loop takes them."""

    waiting: int
    _template = "{waiting} submissions wait for the node's thread; slow down, try again"


class HandedOver:
    """Takes appends from any thread; those that arrive together share one turn of the node."""

    def __init__(self, loop: LoopThread[Any], node: Node) -> None:
        self._loop = loop
        self._node = node
        self._waiting: deque[tuple[Sequence[Body], Future[list[Appended]]]] = deque()
        self._is_scheduled = False  # whether the loop is going to call `_take_over`
        loop.at_end(self._refuse_all)

    def add(self, bodies: Sequence[Body]) -> Future[list[Appended]]:
        """Append adjacent entries; return a future of their outcome.

        It takes no lock, so that signal handlers may call it. Raises TooManyCalls, and
        CallMisplaced in a forked process.
        """
        self._loop.check()
        if not bodies:
            nothing: Future[list[Appended]] = CallFuture()
            nothing.set_result([])
            return nothing
        if (waiting := len(self._waiting)) >= MAX_HANDED_OVER:
            raise TooManyCalls(waiting)
        future = self._loop.tracked()
        # The loop looks at a list later, when its user may have changed it.
        self._waiting.append((tuple(bodies) if isinstance(bodies, list) else bodies, future))
        if not self._is_scheduled:
            self._is_scheduled = True
            if not self._loop.soon(self._take_over):
                self._is_scheduled = False
                self._refuse_all()
        return future

    def add_one(self, body: Body) -> Future[Appended]:
        one: Future[Appended] = CallFuture()
        one.set_running_or_notify_cancel()
        self.add((body,)).add_done_callback(partial(_pass_on_first, one))
        return one

    def _take_over(self) -> None:
        """Submit everything that other threads handed over. Runs in the loop's thread."""
        self._is_scheduled = False  # before looking: a later `add` schedules another call
        while self._waiting:
            bodies, future = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                self._node.submit(bodies, partial(_resolve, future))
            except Exception as error:  # would end the loop
                _resolve(future, error)

    def _refuse_all(self) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                answer(future, self._loop.gone())


def _resolve(future: Future[list[Appended]], outcome: Outcome | Exception) -> None:
    if isinstance(outcome, Exception):
        answer(future, outcome)
    elif not future.done():
        future.set_result(outcome)


def _pass_on_first(one: Future[Appended], many: Future[list[Appended]]) -> None:
    error = many.exception()
    if error is not None:
        one.set_exception(error)
    else:
        one.set_result(many.result()[0])
