"""What the measurements of a group of brokers need, and give."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.brokers.asking import NotAnswered, make_topics
from bench.brokers.group import BrokerGroup
from bench.brokers.rocketmq import Load
from bench.one_run import RunFailed
from bench.process_figures import children_processor_s

# How long a Java virtual machine takes to start and to end, at most.
_AROUND_S = 30.0

_TOPIC_QUEUES = 8


class Figure(NamedTuple):
    name: str
    unit: str
    value: float
    more_is_better: bool = False


def middle(figures: Sequence[Figure]) -> Figure:
    """Return one of several measurements of the same, with their median."""
    return figures[0]._replace(value=statistics.median([one.value for one in figures]))


Clock = tuple[str, Callable[[], float]]


class Meter:
    """The time since its making, and the processor time that is used meanwhile.

    Args:
        clocks: whose processor time it is, and what returns that time so far, in seconds.
    """

    def __init__(self, *clocks: Clock) -> None:
        self._began = time.monotonic()
        self._used_s = [(whose, clock, clock()) for whose, clock in clocks]

    def rated(self, name: str, messages: int) -> list[Figure]:
        """Return messages a second, and the processor time of each for a message."""
        a_second = messages / (time.monotonic() - self._began)
        rate = Figure(name, "a second", a_second, more_is_better=True)
        return [rate, *self.each(name, messages)]

    def used(self, name: str, unit: str, factor: float) -> list[Figure]:
        """Return the processor time of each, times a factor."""
        return [
            Figure(f"{name}: processor time of {whose}", unit, (clock() - before_s) * factor)
            for whose, clock, before_s in self._used_s
        ]

    def each(self, name: str, messages: float) -> list[Figure]:
        """Return the processor time of each for a message."""
        return self.used(name, "us a message", 1e6 / max(1, messages))


def meter_of(group: BrokerGroup, *others: Clock) -> Meter:
    return Meter(("three brokers", group.ran_s), *others)


def times(name: str, found: Mapping[str, float]) -> tuple[Figure, Figure]:
    """Return the median and the 99th percentile that a load program has found."""
    return (
        Figure(f"{name}: median", "ms", found["p50_ms"]),
        Figure(f"{name}: 99th percentile", "ms", found["p99_ms"]),
    )


class Scale(NamedTuple):
    """Amounts of work. Times are in seconds; `rate` is that of the rows that travel."""

    measured_s: float = 8.0
    rate: int = 2000
    backlog: int = 500_000
    delayed: int = 1_000_000
    topics: int = 10_000
    connections: int = 10_000
    kills: int = 5
    polls: int = 10_000
    polled_s: float = 60.0
    lite_topics: int = 1_000_000


class Bench(NamedTuple):
    group: BrokerGroup
    load: Load | None
    scale: Scale
    folder: Path
    is_ours: bool
    grpc_loads: Mapping[str, Load] = {}

    def run(self, work: str, about_s: float, **options: object) -> dict[str, float]:
        """Run a task of the load program, for `about_s` at most. Raises RunFailed."""
        if self.load is None:
            raise RunFailed("there is no load program")
        within_s = about_s + _AROUND_S
        return self.load.run(work, self.group.nameserver, self.folder, within_s, **options)

    def measured(
        self, name: str, work: str, about_s: float, **options: object
    ) -> tuple[dict[str, float], list[Figure]]:
        """Run a task; also return the processor time of brokers and load for each message.

        It depends less on other programs than a rate does. Raises RunFailed.
        """
        meter = meter_of(self.group, ("the load", children_processor_s))
        found = self.run(work, about_s, **options)
        return found, meter.each(name, found["messages"])

    @property
    def measured_s(self) -> int:
        return int(max(1, self.scale.measured_s))

    def make_topics(self, names: list[str], queues: int = _TOPIC_QUEUES) -> None:
        """Raises RunFailed."""
        try:
            make_topics(self.group.leader_address(), names, queues)
        except NotAnswered as error:
            raise RunFailed(str(error)) from None


class Row(NamedTuple):
    """Something to measure.

    `only_ours`: RocketMQ would take too long, or the figure says nothing of it. `needs_load`: the
    load program is used. `load_alone`: the null broker shows the limit of the load. `by_proxy`:
    clients of gRPC ask a proxy. `needs_grpc`: RocketMQ 5's own ones.
    """

    key: str
    what: str
    measure: Callable[[Bench], list[Figure]]
    only_ours: bool = False
    needs_load: bool = True
    load_alone: bool = False
    by_proxy: bool = False
    needs_grpc: bool = False
