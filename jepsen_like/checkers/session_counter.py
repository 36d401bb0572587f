"""Counters in sessions: each increment counts once, and no session sees the counter go back."""

from __future__ import annotations

from bisect import bisect_left

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions, wrong_value
from jepsen_like.checkers.floors import floors
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value

FUNCTIONS = frozenset({"increment", "read"})


def check_session_counter(history: History, request: Request) -> Report:
    """Check `increment` (returns the count after it) and `read` (returns the count).

    Each key is a counter; `initial` in the header is where it begins, 0 unless given.
    """
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    initial = history.header.setting("initial", 0)
    if type(initial) is not int:
        raise wrong_value(history, 1, "initial in the header is a whole number", initial)
    counters: dict[Value, list[Operation]] = {}
    for operation in history.operations:
        if operation.ok and type(operation.result) is not int:
            what = f"{operation.function} returns a whole number"
            raise wrong_value(history, operation.ended_line, what, operation.result)
        counters.setdefault(operation.key, []).append(operation)
    for there in counters.values():
        _check_counter(findings, there, initial)
    sure = sum(one.ok and one.function == "increment" for one in history.operations)
    reads = sum(one.ok and one.function == "read" for one in history.operations)
    summary = f"{counted(sure, 'increment')} acknowledged and {counted(reads, 'read')}"
    unknown = None if sure or reads else "nothing was acknowledged"
    return findings.report(summary, unknown, {"acknowledged": sure, "reads": reads})


def _count(operation: Operation) -> int:
    assert isinstance(operation.result, int)
    return operation.result


def _check_counter(findings: Findings, there: list[Operation], initial: int) -> None:
    increments = [one for one in there if one.function == "increment" and not one.failed]
    called = [one.invoked_line for one in increments]
    ended = sorted(one.certain_from for one in increments if one.ok)
    first_with: dict[int, Operation] = {}
    for floor in floors(there, _count):
        operation, before = floor.operation, floor.before
        if not operation.ok:
            continue
        count = _count(operation)
        own = 1 if operation.function == "increment" else 0
        if before is not None and count < floor.number + own:
            how = f"{operation} after {before}"
            findings.add("backwards", how, before.ended_line, operation.ended_line)
        sure = bisect_left(ended, operation.invoked_line)
        if count < initial + sure + own:
            how = f"{operation}, and {counted(sure, 'increment')} had been acknowledged before"
            findings.add("lost", how, operation.ended_line)
        possible = bisect_left(called, operation.ended_line or 0)
        if count > initial + possible:
            how = f"{operation}, and no more than {counted(possible, 'increment')} had been called"
            findings.add("counted twice", how, operation.ended_line)
        if own and first_with.setdefault(count, operation) is not operation:
            how = f"{operation} and {first_with[count]} returned the same count"
            findings.add("repeated", how, first_with[count].ended_line, operation.ended_line)
