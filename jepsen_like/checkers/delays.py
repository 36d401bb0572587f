"""Delayed messages: never early, none lost, and how late they are."""

from __future__ import annotations

from typing import NamedTuple

from jepsen_like.checkers.checker import (
    Request,
    counted,
    nanoseconds_setting,
    refuse_other_functions,
    refuse_without_times,
    wrong_value,
)
from jepsen_like.checkers.deliveries import RECEIVES, Deliveries, Missing, sent_again
from jepsen_like.checkers.quantiles import quantiles, seconds
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value, shown

FUNCTIONS = frozenset({"send"}) | RECEIVES


class _Send(NamedTuple):
    operation: Operation
    due_ns: int


def check_delays(history: History, request: Request) -> Report:
    """Check `send` ({"id": ..., "deliver_at_ns": ...}), `receive` and `drain` (ids).

    `deliver_at_ns` is of the clock of the history. Settings of the header: `clock_error_ns`, how
    far the two clocks may differ (0 unless given); `late_after_ns`, the lateness from which on a
    message is `late` (unless given, none is).
    """
    refuse_other_functions(history, FUNCTIONS)
    refuse_without_times(history, "delays")
    findings = Findings(request.allowed)
    clock_error_ns = nanoseconds_setting(history, "clock_error_ns") or 0
    late_after_ns = nanoseconds_setting(history, "late_after_ns")
    sends: dict[tuple[Value, Value], _Send] = {}
    queues: dict[Value, Deliveries] = {}
    for operation in history.operations:
        deliveries = queues.setdefault(operation.key, Deliveries())
        if operation.function in RECEIVES:
            deliveries.take(operation)
        else:
            name, due_ns = _delayed(history, operation)
            before = sends.get((operation.key, name))
            if before is not None:
                raise sent_again(history, name, before.operation, operation)
            sends[operation.key, name] = _Send(operation, due_ns)
    lateness_ns: list[int] = []
    for key, deliveries in queues.items():
        deliveries.close()
        deliveries.tell_duplicates(findings)
        for message, there in deliveries.by_message.items():
            first = there[0]
            send = sends.get((key, message))
            words = f"{shown(message, 40)} was received in line {first.line}"
            if send is None or send.operation.invoked_line > first.line:
                findings.add("invented", f"{words}, and not sent before", first.line)
                continue
            if send.operation.failed:
                findings.add("aborted", f"{words}; {send.operation} had failed", first.line)
            late_ns = (first.receive.ended_ns or 0) - send.due_ns
            lateness_ns.append(max(late_ns, 0))
            if late_ns < -clock_error_ns:
                how = f"{words}, {seconds(-late_ns)} before it was due"
                findings.add("early", how, send.operation.invoked_line, first.line)
            elif late_after_ns is not None and late_ns > late_after_ns:
                how = f"{words}, {seconds(late_ns)} after it was due"
                findings.add("late", how, send.operation.invoked_line, first.line)
    missing = Missing()
    for (key, message), send in sends.items():
        end = send.operation.certain_from
        if end != float("inf") and message not in queues[key].by_message:
            missing.add(findings, queues[key], "acknowledged", message, int(end))
    told = quantiles(lateness_ns)
    text = [f"lateness: {told.told()}"] if lateness_ns else []
    summary = f"{counted(len(sends), 'message')} sent, {len(lateness_ns)} received"
    unknown = missing.unknown()
    if unknown is None and not lateness_ns and not any(one.operation.ok for one in sends.values()):
        unknown = "nothing was acknowledged" if sends else "nothing was sent"
    figures = {"sent": len(sends), "lost": missing.lost, "lateness_ns": told._asdict()}
    return findings.report(summary, unknown, figures, text)


def _delayed(history: History, send: Operation) -> tuple[Value, int]:
    value, line = send.value, send.invoked_line
    due_ns = value.get("deliver_at_ns") if isinstance(value, Map) else None
    if not isinstance(value, Map) or "id" not in value or type(due_ns) is not int:
        shape = '{"id": ..., "deliver_at_ns": nanoseconds}'
        raise wrong_value(history, line, f"send takes {shape}", value)
    return value["id"], due_ns
