"""Queues whose users gain and lose the right to send: nothing is stored that was denied."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions, wrong_value
from jepsen_like.checkers.deliveries import RECEIVES, SENDS, deliveries_by_key
from jepsen_like.checkers.queues import check_queue
from jepsen_like.checkers.report import Findings, Report, Verdict
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value, shown

CHANGES = frozenset({"allow", "deny"})
FUNCTIONS = SENDS | RECEIVES | CHANGES
# How the error of a send begins that was refused because its user may not send.
DENIED = "denied"
_NEVER = float("inf")


class _Span(NamedTuple):
    """Lines between which a user certainly has a right, or certainly has not, since a change."""

    change: Operation
    first: float
    last: float


def check_guarded_queue(history: History, request: Request) -> Report:
    """Check `send` (`{id, as}`: a message and who sends it), `receive`, `drain`, and `allow` and
    `deny` (a user, or one secret of it).

    As `queue`. Besides, a send that began after a denial was answered, and ended before any client
    asked to allow it again, is neither acknowledged nor received; and none is denied while it is
    allowed.
    """
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    users: dict[Value, list[Operation]] = {}
    sends: list[Operation] = []
    plain: list[Operation] = []
    for operation in history.operations:
        if operation.function in CHANGES:
            users.setdefault(operation.value, []).append(operation)
            continue
        if operation.function in SENDS:
            sends.append(operation)
            plain.append(replace(operation, value=_part(history, operation, "id")))
        else:
            plain.append(operation)
    report = check_queue(replace(history, operations=plain), request)
    findings.include(report)
    received = _received(plain)
    tried = 0
    for send in sends:
        changes = users.get(_part(history, send, "as"), [])
        message = (send.key, _part(history, send, "id"))
        tried += _check_denied(findings, send, changes, received.get(message))
        _check_allowed(findings, send, changes)
    summary = f"{report.summary}; {counted(tried, 'send')} after a denial"
    unknown = None
    if sends and not any(one.ok for one in sends):
        unknown = "nothing was acknowledged"
    elif report.verdict is Verdict.UNKNOWN:
        unknown = "see the messages"
    return findings.report(summary, unknown, {**report.figures, "denied": tried})


def _part(history: History, send: Operation, name: str) -> Value:
    value = send.value
    if not isinstance(value, Map) or {"id", "as"} - set(value):
        raise wrong_value(history, send.invoked_line, "a send has {id, as}", value)
    return value[name]


def _received(operations: list[Operation]) -> dict[tuple[Value, Value], int]:
    """Return the line in which each message was first received."""
    found: dict[tuple[Value, Value], int] = {}
    for key, there in deliveries_by_key(operations).items():
        for message, deliveries in there.by_message.items():
            found[key, message] = deliveries[0].line
    return found


def _check_denied(
    findings: Findings, send: Operation, changes: list[Operation], line: int | None
) -> bool:
    """Return whether a send was denied from its begin to its end."""
    span = _span(changes, send, "deny")
    # A send of unknown outcome may be stored at any later time; one that was received is.
    end = send.ended_line if send.ok or send.failed else line or _NEVER
    if span is None or end is None or end > span.last:
        return False
    if send.ok or line is not None:
        where = "" if line is None else f", and received in line {line}"
        how = f"{send} was stored{where}, after {span.change}"
        findings.add("stored though denied", how, span.change.ended_line, send.invoked_line, line)
    return True


def _check_allowed(findings: Findings, send: Operation, changes: list[Operation]) -> None:
    if not send.failed or not str(send.error).startswith(DENIED):
        return
    span = _span(changes, send, "allow")
    if span is not None and send.ended_line is not None and send.ended_line <= span.last:
        how = f"{send}: {shown(send.error, 100)}, after {span.change}"
        findings.add("denied though allowed", how, span.change.ended_line, send.invoked_line)


def _span(changes: list[Operation], send: Operation, function: str) -> _Span | None:
    """Return the span of a right in which a send began. Changes of a user follow one another."""
    before = [one for one in changes if one.invoked_line < send.invoked_line]
    if not before or before[-1].function != function:
        return None
    change = before[-1]
    if not change.ok or change.ended_line is None or change.ended_line > send.invoked_line:
        return None
    if any(one.function != function and not (one.ok or one.failed) for one in before):
        return None  # the other change may come to be in force at any time
    later = [one.invoked_line for one in changes if one.invoked_line > send.invoked_line]
    return _Span(change, change.ended_line, min(later, default=_NEVER))
