"""Queues that operators change: groups are moved back, topics are deleted and made again, and
delayed messages are recalled. These checks add their findings to those of the check of the
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from jepsen_like.checkers.checker import (
    Check,
    Request,
    counted,
    nanoseconds_setting,
    refuse_without_times,
)
from jepsen_like.checkers.delays import check_delays
from jepsen_like.checkers.deliveries import SENDS, Missing, deliveries_by_key
from jepsen_like.checkers.quantiles import seconds
from jepsen_like.checkers.queues import check_queue
from jepsen_like.checkers.report import Findings, Report, Verdict
from jepsen_like.history.history import History
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.value import Map, Value, shown

# Raises HistoryUnreadable; returns why the verdict is unknown, if it is.
Addition = Callable[[History, Sequence[Operation], Findings], str | None]


def _with(function: str, check: Check, add: Addition) -> Check:
    """Return a check of a history with a further function, which `check` itself does not see."""

    def checked(history: History, request: Request) -> Report:
        changes = [one for one in history.operations if one.function == function]
        others = [one for one in history.operations if one.function != function]
        report = check(replace(history, operations=others), request)
        findings = Findings(request.allowed)
        unknown = add(history, changes, findings)
        what = f"{counted(len(changes), function)}, {report.summary}"
        if report.verdict is not Verdict.VALID:
            unknown = unknown or report.summary
        return joined(findings.report(what, unknown), [report])

    return checked


def joined(first: Report, others: Sequence[Report]) -> Report:
    """Return one report with the findings of all; the worst verdict counts."""
    reports = [first, *others]
    counts: dict[str, int] = {}
    for report in reports:
        for kind, number in report.counts.items():
            counts[kind] = counts.get(kind, 0) + number
    verdicts = [report.verdict for report in reports]
    worst = next(
        (one for one in (Verdict.INVALID, Verdict.UNKNOWN) if one in verdicts), Verdict.VALID
    )
    problems = [problem for report in reports for problem in report.problems]
    allowed: Collection[str] = sorted({kind for report in reports for kind in report.allowed})
    text = [line for report in reports for line in report.text]
    figures = {name: value for report in reports for name, value in report.figures.items()}
    return Report(worst, first.summary, problems, counts, allowed, figures, text)


def _resets(history: History, changes: Sequence[Operation], findings: Findings) -> str | None:
    """Check that all messages come again after a reset to the first one."""
    last_of = {one.key: one for one in changes if one.ok}
    by_key, missing = deliveries_by_key(history.operations), Missing()
    for send in history.operations:
        last = last_of.get(send.key)
        if last is None or send.function not in SENDS or send.certain_from >= last.invoked_line:
            continue
        deliveries = by_key[send.key]
        there = deliveries.by_message.get(send.value, [])
        if not there or there[-1].line > last.invoked_line:
            continue  # the check of the queue reports that it never came
        if not deliveries.drained_after(last.certain_from):
            missing.unseen += 1
            continue
        if deliveries.has_unknown:
            missing.maybe_taken += 1
            continue
        how = (
            f"{shown(send.value, 40)} did not come again after {last}: it came last in line "
            f"{there[-1].line}"
        )
        findings.add("undone", how, last.ended_line, there[-1].line)
    return missing.unknown()


def _recalls(history: History, changes: Sequence[Operation], findings: Findings) -> str | None:
    """Check that no recalled message comes."""
    by_key, missing = deliveries_by_key([*history.operations, *changes]), Missing()
    for recall in changes:
        there = by_key[recall.key].by_message.get(recall.value)
        if recall.ok and there:
            how = f"{shown(recall.value, 40)} was received in line {there[0].line}; {recall}"
            findings.add("recalled", how, recall.ended_line, there[0].line)
        elif recall.ok and not by_key[recall.key].drained_after(recall.certain_from):
            missing.unseen += 1  # it may yet come
    return missing.unknown()


def check_recalls(history: History, request: Request) -> Report:
    """Check `send`, `receive` and `drain` as `delays` does, and `recall` (an id).

    A message that may have been recalled may be missing.
    """
    perhaps = {(one.key, one.value) for one in history.operations if one.function == "recall"}

    def kept(one: Operation) -> Operation:
        """Return a send that never ends in place of one whose message may be missing."""
        value = one.value.get("id") if isinstance(one.value, Map) else None
        if one.function != "send" or not one.ok or (one.key, value) not in perhaps:
            return one
        return replace(one, ended_line=None)

    operations = [kept(one) for one in history.operations]
    check = _with("recall", check_delays, _recalls)
    return check(replace(history, operations=operations), request)


check_resets = _with("reset", check_queue, _resets)


def check_remade(history: History, request: Request) -> Report:
    """Check `send`, `receive`, `drain` as `queue` does, and `delete`, of the topic.

    A message must come if no deletion was under way at its send or called later. A message that was
    acknowledged before a deletion was called comes at most `cached_ns`, a setting of the header,
    after that deletion: clients may still have it. A deletion of unknown outcome is over when a
    later one was acknowledged, which the log has behind it.
    """
    refuse_without_times(history, "deletions")
    cached_ns = nanoseconds_setting(history, "cached_ns") or 0
    deletions = [one for one in history.operations if one.function == "delete" and not one.failed]
    over: dict[Value, float] = {}
    until: dict[Value, float] = {}
    for one in reversed(deletions):
        until[one.key] = min(until.get(one.key, float("inf")), one.certain_from)
        over[one.key] = max(over.get(one.key, 0.0), until[one.key])

    def kept(one: Operation) -> Operation:
        """Return a send of unknown outcome in place of one whose message may have been deleted."""
        if one.function not in SENDS or not one.ok or one.invoked_line > over.get(one.key, 0.0):
            return one
        return replace(one, outcome=EventType.INFO)

    def revived(told: History, changes: Sequence[Operation], findings: Findings) -> str | None:
        by_key = deliveries_by_key(told.operations)
        for send in history.operations:
            there = by_key[send.key].by_message.get(send.value) if send.function in SENDS else None
            for deletion in changes:
                if not there or not send.ok or not deletion.ok or deletion.key != send.key:
                    continue
                late_ns = (there[-1].receive.ended_ns or 0) - (deletion.ended_ns or 0)
                if send.certain_from < deletion.invoked_line and late_ns > cached_ns:
                    how = (
                        f"{shown(send.value, 40)} was received in line {there[-1].line}, "
                        f"{seconds(late_ns)} after its topic was deleted: {deletion}"
                    )
                    findings.add("revived", how, deletion.ended_line, there[-1].line)
                    break
        return None

    operations = [kept(one) for one in history.operations]
    check = _with("delete", check_queue, revived)
    return check(replace(history, operations=operations), request)
