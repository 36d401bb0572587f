"""Calls from producers and consumers to a program's metrics."""

import logging
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol

from dledger_mq.errors import SendFailed
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.message_queue import MessageQueue

_log = logging.getLogger(__name__)

P = ParamSpec("P")


class ClientMetrics(Protocol):
    """Receives the events of producers and consumers: implement it, or use `PrometheusMetrics`.

    The loop that sends and consumes makes these calls, so they must be quick and must not block.
    Errors are logged, once for each method, and have no other effect.
    """

    def sent(self, topic: str, took_s: float, attempts: int) -> None:
        """A message, or a batch of `send_batch`, was acknowledged.

        Args:
            topic: its topic.
            took_s: since its first attempt; waiting for room in the window does not count.
            attempts: how often it was handed to a connection; each after the first is a retry.
        """

    def send_failed(self, topic: str, error: SendFailed, took_s: float) -> None:
        """A message, or a batch of `send_batch`, was not acknowledged.

        Args:
            topic: its topic.
            error: what the caller gets; `error.attempts` is 0 if no attempt was made.
            took_s: since its first attempt, or since the call if there was none.
        """

    def pulled(
        self, group: str, queue: MessageQueue, messages: int, size_bytes: int, lag: int
    ) -> None:
        """A broker answered a pull.

        Args:
            group: the consumer group.
            queue: the queue.
            messages: the number of messages in the answer that match the subscription.
            size_bytes: the bytes of the answer's body, in which messages are as they are stored.
            lag: the number of messages of the queue that this consumer has not consumed, those of
                the answer included; for a pull consumer, that it has not pulled.
        """

    def consumed(self, group: str, messages: Sequence[ReceivedMessage], took_s: float) -> None:
        """A listener, or a loop over the consumer, consumed messages.

        Args:
            group: the consumer group.
            messages: of one queue; a redelivered one has `reconsume_times` above 0.
            took_s: since they were handed out.
        """

    def failed(self, group: str, messages: Sequence[ReceivedMessage], took_s: float) -> None:
        """A listener failed, or a loop gave its message back: the messages are redelivered later.

        Args:
            group: the consumer group.
            messages: of one queue.
            took_s: since they were handed out.
        """

    def left(self, group: str, queue: MessageQueue) -> None:
        """A push consumer stopped reading a queue, whose lag another member reports now.

        Args:
            group: the consumer group.
            queue: the queue.
        """


def _reports(
    method: Callable[Concatenate[Any, P], None],
) -> Callable[Concatenate["ReportedMetrics", P], None]:
    @wraps(method)
    def call(reported: "ReportedMetrics", /, *args: P.args, **kwargs: P.kwargs) -> None:
        name = method.__name__
        try:
            getattr(reported._metrics, name)(*args, **kwargs)
        except Exception:
            if name not in reported._complained:  # a fault in a hook comes with every message
                reported._complained.add(name)
                _log.exception("the metrics' call %s failed; further failures are not logged", name)

    return call


class ReportedMetrics:
    """Forwards the calls of `ClientMetrics`, and logs their errors."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics = metrics
        self._complained: set[str] = set()

    sent = _reports(ClientMetrics.sent)
    send_failed = _reports(ClientMetrics.send_failed)
    pulled = _reports(ClientMetrics.pulled)
    consumed = _reports(ClientMetrics.consumed)
    failed = _reports(ClientMetrics.failed)
    left = _reports(ClientMetrics.left)


def reported(metrics: ClientMetrics | None) -> ReportedMetrics | None:
    return None if metrics is None else ReportedMetrics(metrics)
