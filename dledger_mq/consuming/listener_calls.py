"""Calls a consumer's listener; counts, traces and measures the calls."""

import logging

import trio

from dledger_mq.client_metrics import ReportedMetrics
from dledger_mq.consuming.consume_tally import ConsumeTally
from dledger_mq.listener import Listener, says_consumed
from dledger_mq.listener_watch import ListenerWatch
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.tracing.trace_writer import TraceWriter

_log = logging.getLogger(__name__)


class ListenerCalls:
    """The calls of one consumer's listener, or the turns of a loop over its messages.

    A call that takes longer than `slow_s` is logged. `tally` counts the calls, and `trace`
    writes a record of each, unless it is None.
    """

    def __init__(
        self,
        group: str,
        listener: Listener | None,
        watch: ListenerWatch,
        slow_s: float,
        metrics: ReportedMetrics | None = None,
    ) -> None:
        self.group = group
        self.listener = listener
        self.tally = ConsumeTally(trio.current_time)
        self.trace: TraceWriter | None = None
        self._watch = watch
        self._slow_s = slow_s
        self._metrics = metrics

    def begin(self, messages: list[ReceivedMessage]) -> str:
        """Record that messages of one queue are handed out; return the call's id for `end`."""
        return "" if self.trace is None else self.trace.call_began(messages)

    def end(
        self, request: str, messages: list[ReceivedMessage], took_s: float, *, is_consumed: bool
    ) -> None:
        """Record the outcome of a call, `took_s` after its begin."""
        topic = messages[0].queue.topic
        self.tally.called(topic, len(messages), took_s, is_consumed=is_consumed)
        if self.trace is not None:
            self.trace.call_ended(request, messages, took_s, is_consumed=is_consumed)
        if self._metrics is not None:
            record = self._metrics.consumed if is_consumed else self._metrics.failed
            record(self.group, messages, took_s)

    async def call(self, messages: list[ReceivedMessage], began: float) -> bool:
        """Call the listener with messages of one queue; return whether it consumed them.

        `began` is when they were handed out, on trio's clock. Raises what the listener raises.
        """
        assert self.listener is not None
        return says_consumed(
            await self._watch.call(self.listener, messages, self.group, self._slow_s, began)
        )

    async def succeeds(self, messages: list[ReceivedMessage], began: float) -> bool:
        """Return whether a `call` succeeds; log its error."""
        try:
            return await self.call(messages, began)
        except Exception:
            _log.exception("the listener of group %s failed", self.group)
            return False
