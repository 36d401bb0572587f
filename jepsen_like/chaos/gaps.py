"""How long clients waited for an answer after each kind of fault. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jepsen_like.checkers.quantiles import quantiles
from jepsen_like.history.operation import Operation
from jepsen_like.report.told_run import GapRow

NS_A_S = 1_000_000_000


class Window(NamedTuple):
    """The time after the begin of a fault, until the next one begins or all are healed."""

    kind: str
    targets: frozenset[str]
    begin_ns: int
    end_ns: int


def windows_of(events: Iterable[Mapping[str, object]], end_ns: int) -> list[Window]:
    """Return the windows of a run, from the lines of faults.jsonl; clients ended at `end_ns`.

    A fault that begins during others has a kind of its own, such as `kill-leader + isolate-leader`,
    because two members of three may be away then.
    """
    moments = [event for event in events if event["event"] in ("begin", "end")]
    moments.sort(key=ns_of)
    begins = [event for event in moments if event["event"] == "begin"]
    found: list[Window] = []
    in_force: dict[object, str] = {}
    for event in moments:
        if event["event"] == "end":
            in_force.pop(event["fault"], None)
            continue
        kind = " + ".join([str(event["kind"]), *sorted(in_force.values())])
        in_force[event["fault"]] = str(event["kind"])
        targets = event.get("targets", ())
        assert isinstance(targets, (list, tuple))
        place = len(found)
        until_ns = ns_of(begins[place + 1]) if place + 1 < len(begins) else end_ns
        found.append(Window(kind, frozenset(targets), ns_of(event), until_ns))
    return [window for window in found if window.end_ns > window.begin_ns]


def ns_of(event: Mapping[str, object]) -> int:
    time_ns = event["time_ns"]
    assert isinstance(time_ns, int)
    return time_ns


def gap_rows(
    operations: Sequence[Operation],
    windows: Sequence[Window],
    readers: int,
    clients: int,
    step: int,
) -> list[GapRow]:
    """Return the table of gaps by fault.

    Of `clients`, the first `readers` read, each from one member; all others write. Process numbers
    that differ by a multiple of `step` are the same client.
    """
    moments: dict[int, list[int]] = {client: [] for client in range(clients)}
    members: dict[int, str] = {}
    for operation in operations:
        client = operation.process % step
        if client not in moments:
            continue
        if client < readers and operation.member is not None:
            members[client] = operation.member
        if operation.ok and operation.ended_ns is not None:
            moments[client].append(operation.ended_ns)
    for times in moments.values():
        times.sort()
    gathered: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    counts: dict[tuple[str, str], int] = {}
    for window in windows:
        seen: set[str] = set()
        for client, times in moments.items():
            if not times:
                continue
            who = _who(client, readers, members, window)
            gathered.setdefault((window.kind, who), []).append(_longest(times, window))
            seen.add(who)
        for who in seen:
            counts[window.kind, who] = counts.get((window.kind, who), 0) + 1
    return [
        _row(kind, who, counts[kind, who], gaps) for (kind, who), gaps in sorted(gathered.items())
    ]


def _who(client: int, readers: int, members: Mapping[int, str], window: Window) -> str:
    if client >= readers:
        return "writes"
    return "reads of the hit" if members.get(client) in window.targets else "reads of others"


def _longest(times: Sequence[int], window: Window) -> tuple[int, bool]:
    """Return the longest time without an ok within a window, and whether the window cut it off."""
    inside = times[bisect_left(times, window.begin_ns) : bisect_right(times, window.end_ns)]
    edges = [window.begin_ns, *inside, window.end_ns]
    longest, cut = 0, False
    for place in range(len(edges) - 1):
        gap = edges[place + 1] - edges[place]
        if gap > longest:
            longest, cut = gap, place + 2 == len(edges)
    return longest, cut


def _row(kind: str, who: str, windows: int, gaps: Sequence[tuple[int, bool]]) -> GapRow:
    spread = quantiles(gap for gap, _ in gaps)
    unended = sum(cut for _, cut in gaps)
    times_s = [ns / NS_A_S for ns in (spread.p50, spread.p95, spread.longest)]
    return GapRow(kind, who, windows, len(gaps), unended, *times_s)
