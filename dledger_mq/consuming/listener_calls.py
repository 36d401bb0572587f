"""The calls of a consumer's listener, and what is told of them."""

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

    Args:
        group: the consumer group.
        listener: the listener; None for a consumer that is iterated over.
        watch: watches the calls.
        slow_s: after so long a call is told in the log.
        metrics: told what became of messages, or None.

    Attributes:
        group: the consumer group.
        listener: the listener, or None.
        tally: counts the calls.
        trace: tells of each call, or None.
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
        """Messages of one queue are handed out; returns what `end` is told, to find the call."""
        return "" if self.trace is None else self.trace.call_began(messages)

    def end(
        self, request: str, messages: list[ReceivedMessage], took_s: float, *, is_consumed: bool
    ) -> None:
        """Tell what became of them, so many seconds later."""
        topic = messages[0].queue.topic
        self.tally.called(topic, len(messages), took_s, is_consumed=is_consumed)
        if self.trace is not None:
            self.trace.call_ended(request, messages, took_s, is_consumed=is_consumed)
        if self._metrics is not None:
            tell = self._metrics.consumed if is_consumed else self._metrics.failed
            tell(self.group, messages, took_s)

    async def call(self, messages: list[ReceivedMessage], began: float) -> bool:
        """Call the listener; return whether it consumed the messages. Raises what it raises.

        Args:
            messages: of one queue.
            began: when they were handed out, on trio's clock.
        """
        assert self.listener is not None
        return says_consumed(
            await self._watch.call(self.listener, messages, self.group, self._slow_s, began)
        )

    async def succeeds(self, messages: list[ReceivedMessage], began: float) -> bool:
        """As `call`, but an error is logged, and says no."""
        try:
            return await self.call(messages, began)
        except Exception:
            _log.exception("the listener of group %s failed", self.group)
            return False
