"""Broadcasts: every consumer receives each message."""

from __future__ import annotations

from dataclasses import replace

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions
from jepsen_like.checkers.deliveries import RECEIVES, SENDS
from jepsen_like.checkers.queues import check_queue
from jepsen_like.checkers.report import Findings, Report, Verdict
from jepsen_like.history.history import History


def check_broadcast(history: History, request: Request) -> Report:
    """Check `send` (a message), `receive` (null, one or several) and `drain`, for each consumer.

    A consumer is a process that receives or drains. For each of them the promise is that of a queue
    that it has to itself: a message is lost to it if its send was acknowledged before the consumer
    began a drain, and it never received it.
    """
    refuse_other_functions(history, SENDS | RECEIVES)
    findings = Findings(request.allowed)
    consumers = sorted({one.process for one in history.operations if one.function in RECEIVES})
    unknown = None if consumers else "nobody received anything"
    received = 0
    for consumer in consumers:
        own = [
            one for one in history.operations if one.function in SENDS or one.process == consumer
        ]
        report = check_queue(replace(history, operations=own), request)
        for problem in report.problems:
            findings.add(problem.kind, f"consumer {consumer}: {problem.how}", *problem.lines)
        if report.verdict is Verdict.UNKNOWN:
            unknown = unknown or f"consumer {consumer}: {report.summary}"
        count = report.figures["received"]
        received += count if isinstance(count, int) else 0
    sends = [one for one in history.operations if one.function in SENDS]
    acknowledged = sum(one.ok for one in sends)
    summary = (
        f"{counted(acknowledged, 'message')} acknowledged of {len(sends)} sent, {received} "
        f"received by {counted(len(consumers), 'consumer')}"
    )
    figures = {"sent": len(sends), "acknowledged": acknowledged, "consumers": len(consumers)}
    return findings.report(summary, unknown, figures)
