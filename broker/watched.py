"""What a broker tells those that watch its process: metrics, and whether clients may come."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from broker.machine import BrokerMachine
from broker.metrics.scrapes import scrapes_of
from broker.retention.full_disk import FULL_DISK
from broker.serving.parts import Parts
from broker.serving.requests import Requests
from dledger import Node

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_REBUILDING = "the consume queues are being rebuilt"


class Watched:
    """A broker that starts, and then runs.

    Attributes:
        nodes: the member, once its log is read.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._running: tuple[BrokerMachine, Parts, Requests] | None = None
        self._collect: Callable[[], Iterable[Metric]] = tuple

    def runs(self, machine: BrokerMachine, parts: Parts, requests: Requests) -> None:
        self._running = machine, parts, requests
        self._collect = scrapes_of(parts)

    def metrics(self) -> "Iterable[Metric]":
        return self._collect()

    def waits(self) -> Iterator[str]:
        """Yield why clients should not come, besides what the member waits for."""
        if self._running is None:
            if self.nodes:
                yield _REBUILDING
            return
        machine, parts, requests = self._running
        if machine.queues.damaged:
            yield _REBUILDING
        if parts[FULL_DISK].is_refusing:
            yield "the disk is fuller than --disk-refuse-percent allows: no message is taken"
        if requests.is_ending:
            yield "this member ends: its clients are sent to another one"
