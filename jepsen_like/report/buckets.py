"""A run cut into short spans of time, with the latencies and outcomes of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from jepsen_like.checkers.quantiles import quantiles
from jepsen_like.history.operation import EventType, Operation


class Bucket(NamedTuple):
    """The operations that ended in one span, and the latencies of the `timed` ones.

    Those of unknown outcome are in the span in which their client gave up.
    """

    begin_ns: int
    ok: int
    failed: int
    unknown: int
    timed: int
    p50_ns: int
    p99_ns: int


def buckets(
    operations: Sequence[Operation],
    begin_ns: int,
    end_ns: int,
    number: int,
    deliveries: Collection[str] = (),
) -> tuple[list[Bucket], int]:
    """Return the spans from `begin_ns` to `end_ns`, and the length of each in nanoseconds.

    There are fewer than `number` if they would be shorter than a nanosecond. `deliveries` are
    functions that take no time.
    """
    span_ns = max(1, -(-(end_ns - begin_ns) // number))
    count = max(1, -(-(end_ns - begin_ns) // span_ns))
    latencies: list[list[int]] = [[] for _ in range(count)]
    ok, failed, unknown = [0] * count, [0] * count, [0] * count
    for operation in operations:
        ended_ns = operation.invoked_ns if operation.ended_ns is None else operation.ended_ns
        at = min(count - 1, max(0, (ended_ns - begin_ns) // span_ns))
        if operation.outcome is EventType.OK:
            ok[at] += 1
            if operation.function not in deliveries:
                latencies[at].append(max(0, ended_ns - operation.invoked_ns))
        elif operation.outcome is EventType.FAIL:
            failed[at] += 1
        else:
            unknown[at] += 1
    made: list[Bucket] = []
    for at, there in enumerate(latencies):
        spread = quantiles(there)
        begin, ended = begin_ns + at * span_ns, (ok[at], failed[at], unknown[at])
        made.append(Bucket(begin, *ended, len(there), spread.p50, spread.p99))
    return made, span_ns
