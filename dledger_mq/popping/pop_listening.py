"""Hands popped messages to a fixed number of tasks that run the listener."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from dledger_mq.consuming.listener_calls import ListenerCalls
from dledger_mq.popping.held_messages import HeldMessages
from dledger_mq.popping.pop_options import PopOptions
from dledger_mq.popping.popped import Popped


@dataclass(slots=True, eq=False)
class Lane:
    """The messages of one pop.

    Attributes:
        waiting: messages that the listener has not had yet.
        running: of an ordered consumer: messages that the listener has.
        scope: of the listener's call.
    """

    waiting: deque[Popped]
    running: list[Popped] = field(default_factory=list)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class PopListening:
    """Runs the listener with popped messages.

    The messages of an ordered consumer's pop follow one another, each after the success of the one
    before: meanwhile the broker returns no other message of their queue. When one fails, or its
    time is over, it and those behind it are redelivered in their order.
    """

    def __init__(self, calls: ListenerCalls, options: PopOptions, *, is_ordered: bool) -> None:
        self._calls = calls
        self._options = options
        self._is_ordered = is_ordered
        self._ready: deque[Lane] = deque()
        self._lanes: dict[Popped, Lane] = {}  # of an ordered consumer
        self._idle = trio.lowlevel.ParkingLot()
        self._busy: set[Popped] = set()
        self._quiet = trio.lowlevel.ParkingLot()
        self._is_stopping = False

    def offer(self, messages: list[Popped]) -> None:
        lane = Lane(deque(messages))
        if self._is_ordered:
            self._lanes |= dict.fromkeys(messages, lane)
        self._ready.append(lane)
        self._idle.unpark(count=1 if self._is_ordered else len(messages))

    def settled(self, popped: Popped) -> None:
        """Forget a message that is done, or whose time is over."""
        lane = self._lanes.pop(popped, None)
        if lane is not None and popped in lane.running and not popped.wants_acknowledgement:
            lane.scope.cancel()  # the message may be another consumer's by now

    async def stop(self, timeout_s: float) -> None:
        """Hand out no more, and wait up to the timeout until the listener's calls have ended."""
        self._is_stopping = True
        with trio.move_on_after(timeout_s):
            while self._busy:
                await self._quiet.park()

    def stop_handing_out(self) -> None:
        self._is_stopping = True

    async def work(self, held: HeldMessages, acknowledge: Callable[[Popped], None]) -> None:
        """Run the listener with one delivery after the other, for ever."""
        while True:
            lane, these = await self._take(held)
            self._busy.update(these)
            began = trio.current_time()
            is_consumed = False
            lane.running = these
            messages = [one.message for one in these]
            request = self._calls.begin(messages)
            try:
                # Only an ordered consumer's call is cancelled: another consumer may get its
                # messages, and they must not be worked on twice at once.
                with trio.CancelScope() as lane.scope:
                    is_consumed = await self._calls.succeeds(messages, began)
                took_s = trio.current_time() - began
                self._calls.end(request, messages, took_s, is_consumed=is_consumed)
                if is_consumed:
                    for one in these:
                        if not one.is_settled:
                            acknowledge(one)
                    if self._is_ordered and lane.waiting:
                        self._ready.append(lane)
                        self._idle.unpark()
                else:
                    await self._give_back(lane, these, held)
            finally:
                self._busy.difference_update(these)
                if not self._busy:
                    self._quiet.unpark_all()
            # A listener that never waits must not keep the others from running.
            await trio.lowlevel.checkpoint()

    async def _take(self, held: HeldMessages) -> tuple[Lane, list[Popped]]:
        """Wait for messages. Cancelling loses none."""
        while True:
            while self._is_stopping or not self._ready:
                await self._idle.park()
            lane = self._ready.popleft()
            if self._is_ordered and any(one.is_settled for one in lane.waiting):
                for one in lane.waiting:
                    held.settle(one)  # the time of one is over: all are redelivered, in order
                continue
            these: list[Popped] = []
            while lane.waiting and len(these) < self._options.batch_size:
                popped = lane.waiting.popleft()
                if not popped.is_settled:
                    these.append(popped)
            if lane.waiting and not self._is_ordered:
                self._ready.append(lane)
            if these:
                return lane, these

    def _retry_s(self, failures: int) -> float:
        """Return the pause after so many failures, of which a broker may tell a negative number."""
        retry_s = self._options.retry_s
        return retry_s[min(max(failures, 0), len(retry_s) - 1)]

    async def _give_back(self, lane: Lane, these: list[Popped], held: HeldMessages) -> None:
        """Redeliver messages later; of an ordered consumer, with those behind them."""
        if not self._is_ordered:
            pauses_s = [self._retry_s(one.message.reconsume_times) for one in these]
        else:
            these = [*these, *lane.waiting]
            lane.waiting.clear()
            pauses_s = [self._options.suspend_s] * len(these)
        async with trio.open_nursery() as nursery:
            for one, pause_s in zip(these, pauses_s, strict=True):
                if not one.is_settled:
                    nursery.start_soon(held.hide, one, pause_s)
