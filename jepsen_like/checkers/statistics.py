"""Statistics: how much of a history is known, how long operations took, and gaps of readers."""

from __future__ import annotations

from collections import Counter

from jepsen_like.checkers.checker import Request, counted
from jepsen_like.checkers.quantiles import quantiles, seconds
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import EventType
from jepsen_like.history.value import listed

# Functions that read, for the gaps of readers.
READS = frozenset({"read", "get", "receive", "dequeue", "poll", "fetch"})
GAPS_SHOWN_MAX = 8


def check_statistics(history: History, request: Request) -> Report:
    """Count outcomes by function, and measure latencies and the longest gaps.

    A function without any ok proves nothing, so the verdict is unknown then. A gap is the time
    between two reads that succeeded one after another, of one process bound to one member.
    """
    counts: dict[str, Counter[EventType]] = {}
    latencies: dict[str, list[int]] = {}
    for operation in history.operations:
        counts.setdefault(operation.function, Counter())[operation.outcome] += 1
        if operation.ok and operation.ended_ns is not None:
            latency_ns = operation.ended_ns - operation.invoked_ns
            latencies.setdefault(operation.function, []).append(max(0, latency_ns))
    text: list[str] = []
    figures: dict[str, object] = {}
    for function, there in sorted(counts.items()):
        spread = quantiles(latencies.get(function, []))
        words = f"{there[EventType.OK]} ok, {there[EventType.FAIL]} failed, "
        words += f"{there[EventType.INFO]} unknown"
        if history.timed and spread.number:
            words += f"; {spread.told()}"
        text.append(f"{function}: {words}")
        figures[function] = {
            **{outcome.value: there[outcome] for outcome in (*EventType,)[1:]},
            "latency_ns": spread._asdict(),
        }
    if history.timed:
        gaps = _gaps(history)
        figures["longest_gaps_ns"] = {
            f"process {process} at {member}": gap_ns for (process, member), gap_ns in gaps
        }
        for (process, member), gap_ns in gaps[:GAPS_SHOWN_MAX]:
            text.append(f"process {process} at {member}: longest gap {seconds(gap_ns)}")
    never = [function for function, there in counts.items() if not there[EventType.OK]]
    unknown = f"nothing was ok of {listed(never)}" if never else None
    if not counts:
        unknown = "no operation was recorded"
    summary = counted(len(history.operations), "operation")
    return Findings(request.allowed).report(summary, unknown, figures, text)


def _gaps(history: History) -> list[tuple[tuple[int, str], int]]:
    """Return the longest gap of each reader that is bound to a member, the longest first."""
    last_ns: dict[tuple[int, str], int] = {}
    longest: dict[tuple[int, str], int] = {}
    for operation in history.operations:
        if operation.member is None or operation.ended_ns is None or not operation.ok:
            continue
        if operation.function in READS:
            reader = operation.process, operation.member
            before_ns = last_ns.get(reader, operation.ended_ns)
            longest[reader] = max(longest.get(reader, 0), operation.ended_ns - before_ns)
            last_ns[reader] = operation.ended_ns
    return sorted(longest.items(), key=lambda item: -item[1])
