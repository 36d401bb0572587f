"""Queues whose messages are given for a time: what was acknowledged or hidden stays away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from jepsen_like.checkers.changed_queues import joined
from jepsen_like.checkers.checker import (
    Request,
    nanoseconds_setting,
    refuse_other_functions,
    refuse_without_times,
    wrong_value,
)
from jepsen_like.checkers.deliveries import RECEIVES, SENDS
from jepsen_like.checkers.quantiles import seconds
from jepsen_like.checkers.queues import check_queue
from jepsen_like.checkers.report import Findings, Report, Verdict
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value, shown

ACKNOWLEDGE, HIDE = "acknowledge", "hide"
FUNCTIONS = SENDS | RECEIVES | {ACKNOWLEDGE, HIDE}
_NS_A_MS = 1_000_000


class _Given(NamedTuple):
    """One delivery of a stored message: the one of this number, and the call that has it.

    The call is a receive, or one that acknowledges or hides this delivery.
    """

    number: int
    call: Operation


class _Stored:
    """What happened to one stored message: two that were sent once are two."""

    def __init__(self, message: Value) -> None:
        self.message = message
        self.deliveries: list[_Given] = []
        self.acknowledged: list[_Given] = []
        self.hidden: list[_Given] = []


def check_settled(history: History, request: Request) -> Report:
    """Check `send`, `receive`, `drain`, `acknowledge` and `hide`.

    A `receive` takes `{invisible_ms}` and returns `{id, queue, offset, delivery}` of each message:
    where it is stored, and the number of this delivery of it. `acknowledge` takes the same,
    `hide` besides `invisible_ms`, the time from now on. `clock_error_ns` is a setting of the
    header.

    As `queue`. Besides, a delivery that was acknowledged is the last one; a delivery is neither
    acknowledged nor hidden after a later one was received, unless that one was acknowledged; and
    none is received before the invisible time of the one before is over.
    """
    refuse_other_functions(history, FUNCTIONS)
    refuse_without_times(history, "invisible times")
    findings = Findings(request.allowed)
    clock_error_ns = nanoseconds_setting(history, "clock_error_ns") or 0
    stored: dict[tuple[Value, ...], _Stored] = {}
    for place, given in _all_given(history):
        call = given.call
        one = stored.setdefault((call.key, *place[1:]), _Stored(place[0]))
        if call.function in RECEIVES:
            one.deliveries.append(given)
        elif call.function == HIDE:
            one.hidden.append(given)
        else:
            one.acknowledged.append(given)
    for one in stored.values():
        one.deliveries.sort(key=lambda each: (each.number, each.call.ended_line or 0))
        _check_handles(one, findings)
        _check_times(history, one, findings, clock_error_ns)
    acknowledged = sum(each.call.ok for one in stored.values() for each in one.acknowledged)
    hidden = sum(each.call.ok for one in stored.values() for each in one.hidden)
    plain = [_plain(one) for one in history.operations if one.function in SENDS | RECEIVES]
    report = check_queue(replace(history, operations=plain), request)
    summary = f"{acknowledged} acknowledged, {hidden} hidden; {report.summary}"
    unknown = None if acknowledged else "no delivery was acknowledged"
    if report.verdict is Verdict.UNKNOWN:
        unknown = unknown or "see the messages"
    figures = {"settled": acknowledged, "hidden": hidden}
    return joined(findings.report(summary, unknown, figures), [report])


def _all_given(history: History) -> Iterator[tuple[tuple[Value, Value, Value], _Given]]:
    """Yield id, queue and offset of each message of a call, with its delivery."""
    for one in history.operations:
        messages: Value = (one.value,)
        if one.function in SENDS or (one.function in RECEIVES and not one.ok):
            continue
        if one.function in RECEIVES:
            messages = () if one.result is None else one.result
        for message in messages if isinstance(messages, tuple) else (messages,):
            names = {"id", "queue", "offset", "delivery"}
            if not isinstance(message, Map) or names - set(message):
                shape = "{id, queue, offset, delivery}"
                raise wrong_value(history, one.invoked_line, f"a message is {shape}", message)
            number = message["delivery"]
            if type(number) is not int:
                raise wrong_value(history, one.invoked_line, "delivery is a number", number)
            yield (message["id"], message["queue"], message["offset"]), _Given(number, one)


def _plain(one: Operation) -> Operation:
    """Return a receive as `queue` takes it: with the messages alone."""
    if one.function in SENDS or not one.ok or one.result is None:
        return one
    messages = one.result if isinstance(one.result, tuple) else (one.result,)
    return replace(one, result=tuple(each["id"] for each in messages if isinstance(each, Map)))


def _check_handles(one: _Stored, findings: Findings) -> None:
    """Check that a delivery that was settled is the last one by then, or for ever.

    What has been acknowledged already may be acknowledged by any handle: that changes nothing.
    """
    for settled in (*one.acknowledged, *one.hidden):
        call, number = settled.call, settled.number
        later = next((each for each in one.deliveries if each.number > number), None)
        is_over = any(
            each.number > number and each.call.invoked_line < (call.ended_line or 0)
            for each in one.acknowledged
            if not each.call.failed
        )
        if not call.ok or later is None or is_over:
            continue
        line = later.call.ended_line
        words = f"{shown(one.message, 40)} was received again in line {line}"
        if line is not None and line < call.invoked_line:
            how = f"{words}, and then its delivery before was still good for {call}"
            findings.add("stale handle", how, line, call.ended_line)
        elif call.function == ACKNOWLEDGE:
            findings.add("came again", f"{words}, in spite of {call}", call.ended_line, line)


def _check_times(history: History, one: _Stored, findings: Findings, clock_error_ns: int) -> None:
    """Check that no delivery comes before the one that was given before it is over."""
    for before, after in pairwise(one.deliveries):
        received_ns = after.call.ended_ns or 0
        hides = [
            each.call
            for each in one.hidden
            if each.number == before.number and each.call.invoked_ns < received_ns
        ]
        ends = [_end_ns(history, call) for call in hides]
        # What is over may have been the time of the receive, unless a change is certain.
        if not any(call.ok and (call.ended_ns or 0) <= received_ns for call in hides):
            ends.append(_end_ns(history, before.call))
        early_ns = min(ends) - received_ns
        if early_ns > clock_error_ns:
            lines = before.call.ended_line, after.call.ended_line
            how = (
                f"{shown(one.message, 40)}, received in line {lines[0]}, was received again in "
                f"line {lines[1]}, {seconds(early_ns)} before its invisible time was over"
            )
            findings.add("given early", how, *lines)


def _end_ns(history: History, call: Operation) -> int:
    """Return when the invisible time is over at the soonest that a call has asked for."""
    asked = call.value.get("invisible_ms") if isinstance(call.value, Map) else None
    if type(asked) is not int:
        what = f"{call.function} takes invisible_ms"
        raise wrong_value(history, call.invoked_line, what, call.value)
    return call.invoked_ns + asked * _NS_A_MS
