"""Offsets of consumers: none that is committed goes back, and polls go forward."""

from __future__ import annotations

from bisect import bisect_right

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions, wrong_value
from jepsen_like.checkers.floors import floors
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown

FUNCTIONS = frozenset({"commit", "fetch", "reset", "assign", "poll"})


def check_offsets(history: History, request: Request) -> Report:
    """Check `commit` and `reset` (an offset), `fetch` (returns one or null), `poll` and `assign`.

    The key names a queue of a group. After a `reset` the offset may be smaller again. A `poll`
    returns a list of offsets; those that one process polls from one key rise, until an `assign` or
    a `reset` of this process. `initial` in the header is what is fetched before any commit.
    """
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    keys: dict[Value, list[Operation]] = {}
    for operation in history.operations:
        _check_shape(history, operation)
        keys.setdefault(operation.key, []).append(operation)
    compared = 0
    for there in keys.values():
        _check_committed(findings, there, history.header.setting("initial"))
        compared += _check_polls(findings, there)
    fetches = sum(one.ok and one.function == "fetch" for one in history.operations)
    polls = sum(one.ok and one.function == "poll" for one in history.operations)
    summary = f"{counted(fetches + polls, 'answer')}: {fetches} of fetch, {polls} of poll"
    unknown = None
    if not fetches and not compared:
        unknown = "nothing was fetched, and no offset was polled after another"
    return findings.report(summary, unknown, {"fetches": fetches, "polls": polls})


def _check_shape(history: History, operation: Operation) -> None:
    line = operation.invoked_line
    if operation.function in ("commit", "reset"):
        if type(operation.value) is not int:
            raise wrong_value(
                history, line, f"{operation.function} takes an offset", operation.value
            )
    elif operation.ok and operation.function == "fetch":
        if operation.result is not None and type(operation.result) is not int:
            line = operation.ended_line or line
            raise wrong_value(history, line, "fetch returns an offset or null", operation.result)
    elif operation.ok and operation.function == "poll":
        offsets = () if operation.result is None else operation.result
        if not isinstance(offsets, tuple) or any(type(one) is not int for one in offsets):
            line = operation.ended_line or line
            raise wrong_value(history, line, "poll returns a list of offsets", operation.result)


def _offset(operation: Operation) -> int | None:
    """Return the offset that is certainly committed when an operation has ended."""
    value = operation.value if operation.function == "commit" else operation.result
    return value if isinstance(value, int) else None


def _check_committed(findings: Findings, there: list[Operation], initial: Value) -> None:
    resets = [one for one in there if one.function == "reset" and not one.failed]
    setting = [one for one in there if one.function in ("commit", "reset") and not one.failed]
    called: dict[Value, int] = {initial: 0}
    for one in setting:
        called.setdefault(one.value, one.invoked_line)
    by_reset: dict[float, list[Operation]] = {}
    for one in there:
        if one.function != "fetch" or not one.ok:
            continue
        by_reset.setdefault(_last_reset(resets, one), []).append(one)
        end = one.ended_line or 0
        if called.get(one.result, end) >= end:
            how = f"{one}, and nobody had committed {shown(one.result)}"
            findings.add("invented", how, end)
    lines = [one.invoked_line for one in there]
    for line, fetches in by_reset.items():
        # What was called before that line may have happened before the reset.
        since = there[bisect_right(lines, line) : bisect_right(lines, fetches[-1].invoked_line)]
        _check_forward(findings, since, {one.invoked_line for one in fetches})


def _check_forward(findings: Findings, since: list[Operation], fetches: set[int]) -> None:
    """Check that fetches, by their lines, go forward among operations that no reset parts."""
    for floor in floors([one for one in since if one.function in ("commit", "fetch")], _offset):
        operation, before = floor.operation, floor.before
        if before is None or operation.invoked_line not in fetches:
            continue
        offset = operation.result if isinstance(operation.result, int) else -1
        if offset < floor.number:
            how = f"{operation} after {before}"
            findings.add("backwards", how, before.ended_line, operation.ended_line)


def _last_reset(resets: list[Operation], fetch: Operation) -> float:
    """Return the line by which every reset is over that may have happened before a fetch."""
    end = fetch.ended_line or 0
    return max((one.certain_from for one in resets if one.invoked_line < end), default=0.0)


def _check_polls(findings: Findings, there: list[Operation]) -> int:
    """Check that polls of a process go forward; return how many offsets came after another."""
    compared = 0
    last: dict[int, tuple[int, Operation]] = {}
    for operation in there:
        if operation.function in ("assign", "reset"):
            last.pop(operation.process, None)
        elif operation.function == "poll" and operation.ok:
            offsets = operation.result if isinstance(operation.result, tuple) else ()
            for offset in offsets:
                assert isinstance(offset, int)
                before = last.get(operation.process)
                compared += before is not None
                if before is not None and offset <= before[0]:
                    how = f"{operation}: {offset} after {before[0]} of line {before[1].ended_line}"
                    findings.add(
                        "polled backwards", how, before[1].ended_line, operation.ended_line
                    )
                last[operation.process] = offset, operation
    return compared
