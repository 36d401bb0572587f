"""Queues of messages: none is lost, doubled, invented, or overtakes another of its producer.

Broadcasts are queues that each consumer has to itself.
"""

from __future__ import annotations

from dataclasses import replace

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions
from jepsen_like.checkers.deliveries import (
    RECEIVES,
    SENDS,
    Deliveries,
    Delivery,
    Missing,
    sent_again,
)
from jepsen_like.checkers.report import Findings, Report, Verdict
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown

FUNCTIONS = SENDS | RECEIVES


def check_queue(history: History, request: Request) -> Report:
    """Check `send` (a message), `receive` (null, one or several) and `drain`.

    Messages differ within their queue, which the key names. A message is lost if its send was
    acknowledged before a drain began, and no consumer received it. The verdict is
    unknown if no message was acknowledged or received.
    """
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    queues: dict[Value, _Queue] = {}
    for operation in history.operations:
        if operation.key not in queues:
            queues[operation.key] = _Queue(history)
        queues[operation.key].take(operation)
    missing = Missing()
    duplicated = received = 0
    for queue in queues.values():
        queue.deliveries.close()
        queue.check_origin(findings)
        duplicated += queue.deliveries.tell_duplicates(findings)
        queue.check_order(findings)
        queue.check_arrival(findings, missing)
        received += len(queue.deliveries.by_message)
    sends = [send for queue in queues.values() for send in queue.sends.values()]
    acknowledged = sum(send.ok for send in sends)
    figures = {
        "sent": len(sends),
        "acknowledged": acknowledged,
        "received": received,
        "duplicated": duplicated,
        "lost": missing.lost,
        "not_received": missing.unseen + missing.maybe_taken,
    }
    summary = (
        f"{counted(acknowledged, 'message')} acknowledged of {len(sends)} sent, {received} received"
    )
    unknown = missing.unknown()
    if unknown is None and not acknowledged and not received:
        unknown = "nothing was acknowledged" if sends else "nothing was sent"
    return findings.report(summary, unknown, figures)


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
        findings.include(report, f"consumer {consumer}: ")
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


class _Queue:
    def __init__(self, history: History) -> None:
        self.sends: dict[Value, Operation] = {}
        self.deliveries = Deliveries()
        self._history = history

    def take(self, operation: Operation) -> None:
        if operation.function in RECEIVES:
            self.deliveries.take(operation)
            return
        message, line = operation.value, operation.invoked_line
        if message is None:
            raise self._history.unreadable(line, f"{operation.function} without a message")
        before = self.sends.get(message)
        if before is not None:
            raise sent_again(self._history, message, before, operation)
        self.sends[message] = operation

    def check_origin(self, findings: Findings) -> None:
        for message, deliveries in self.deliveries.by_message.items():
            send, line = self.sends.get(message), deliveries[0].line
            if send is None or send.invoked_line > line:
                when = "never sent" if send is None else f"sent only in line {send.invoked_line}"
                how = f"{shown(message, 40)} was received in line {line}, and {when}"
                findings.add("invented", how, line)
            elif send.failed:
                how = f"{shown(message, 40)} was received in line {line}; {send} had failed"
                findings.add("aborted", how, send.invoked_line, line)

    def check_order(self, findings: Findings) -> None:
        """Check that each consumer gets the messages of a producer in the order of their sends."""
        last: dict[tuple[int, int], tuple[Operation, Delivery]] = {}
        for delivery in self.deliveries:
            send = self.sends.get(delivery.message)
            first = self.deliveries.by_message[delivery.message][0]
            if send is None or not send.ok or first.receive is not delivery.receive:
                continue
            pair = send.process, delivery.receive.process
            before = last.get(pair)
            if before is not None and send.invoked_line < before[0].invoked_line:
                how = (
                    f"process {send.process} sent {shown(send.value, 40)} (line "
                    f"{send.invoked_line}) before {shown(before[0].value, 40)} (line "
                    f"{before[0].invoked_line}); process {delivery.receive.process} received it "
                    f"after (lines {before[1].line} and {delivery.line})"
                )
                findings.add("reordered", how, before[1].line, delivery.line)
            else:
                last[pair] = send, delivery

    def check_arrival(self, findings: Findings, missing: Missing) -> None:
        for message, send in self.sends.items():
            end = send.ended_line
            if send.ok and end is not None and message not in self.deliveries.by_message:
                missing.add(findings, self.deliveries, "acknowledged", message, end)
