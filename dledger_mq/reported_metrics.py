"""Tells a program's metrics what happens, and keeps their errors from sending and consuming."""

import logging
from collections.abc import Callable, Sequence
from typing import ParamSpec

from dledger_mq.client_metrics import ClientMetrics
from dledger_mq.errors import SendFailed
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.message_queue import MessageQueue

_log = logging.getLogger(__name__)

P = ParamSpec("P")


class ReportedMetrics:
    """The same calls as `ClientMetrics`, none of which raises.

    Args:
        metrics: the user's.
    """

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics = metrics
        self._complained: set[str] = set()

    def sent(self, topic: str, seconds: float, attempts: int) -> None:
        """As ClientMetrics.sent."""
        self._tell(self._metrics.sent, topic, seconds, attempts)

    def send_failed(self, topic: str, error: SendFailed, seconds: float) -> None:
        """As ClientMetrics.send_failed."""
        self._tell(self._metrics.send_failed, topic, error, seconds)

    def pulled(self, group: str, queue: MessageQueue, messages: int, size: int, lag: int) -> None:
        """As ClientMetrics.pulled."""
        self._tell(self._metrics.pulled, group, queue, messages, size, lag)

    def consumed(self, group: str, messages: Sequence[ReceivedMessage], seconds: float) -> None:
        """As ClientMetrics.consumed."""
        self._tell(self._metrics.consumed, group, messages, seconds)

    def failed(self, group: str, messages: Sequence[ReceivedMessage], seconds: float) -> None:
        """As ClientMetrics.failed."""
        self._tell(self._metrics.failed, group, messages, seconds)

    def left(self, group: str, queue: MessageQueue) -> None:
        """As ClientMetrics.left."""
        self._tell(self._metrics.left, group, queue)

    def _tell(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception:
            name = getattr(call, "__name__", repr(call))
            if name not in self._complained:  # a fault in a hook comes with every message
                self._complained.add(name)
                _log.exception("the metrics' call %s failed; further failures are not logged", name)


def reported(metrics: ClientMetrics | None) -> ReportedMetrics | None:
    """Metrics whose calls do not raise, or None without any."""
    return None if metrics is None else ReportedMetrics(metrics)
