"""Order within keys: all readers see what was appended in one order, that of the appends."""

from __future__ import annotations

from itertools import pairwise

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions, wrong_value
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown

FUNCTIONS = frozenset({"append", "read"})


def check_key_order(history: History, request: Request) -> Report:
    """Check `append` (a value that differs within its key) and `read` (a list, in order).

    A read may begin and end anywhere. Its values are in the order in which appends were
    acknowledged before others were called, and no two reads disagree.
    """
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    keys: dict[Value, _Log] = {}
    reads = 0
    for operation in history.operations:
        log = keys.setdefault(operation.key, _Log())
        if operation.function == "append":
            before = log.appends.setdefault(operation.value, operation)
            if before is not operation:
                raise history.unreadable(
                    operation.invoked_line,
                    f"{shown(operation.value, 40)} is appended again (first in line "
                    f"{before.invoked_line}): give each append of a key a value of its own",
                )
        elif operation.ok:
            if not isinstance(operation.result, tuple):
                line = operation.ended_line
                raise wrong_value(history, line, "read returns a list", operation.result)
            reads += 1
            log.reads.append(operation)
    for log in keys.values():
        log.check(findings)
    appends = sum(len(log.appends) for log in keys.values())
    summary = f"{counted(appends, 'append')} and {counted(reads, 'read')} of {len(keys)} keys"
    unknown = None if reads else "nothing was read"
    if reads and not any(read.result for log in keys.values() for read in log.reads):
        unknown = "every read was empty"
    return findings.report(summary, unknown, {"appends": appends, "reads": reads})


class _Log:
    def __init__(self) -> None:
        self.appends: dict[Value, Operation] = {}
        self.reads: list[Operation] = []

    def check(self, findings: Findings) -> None:
        followers: dict[Value, dict[Value, Operation]] = {}
        for read in self.reads:
            values = read.result
            assert isinstance(values, tuple)
            self._check_origin(findings, read, values)
            self._check_times(findings, read, values)
            for first, second in pairwise(values):
                if first != second:
                    followers.setdefault(first, {}).setdefault(second, read)
        self._check_agreement(findings, followers)

    def _check_origin(self, findings: Findings, read: Operation, values: tuple[Value, ...]) -> None:
        line = read.ended_line or 0
        seen: set[Value] = set()
        for value in values:
            append = self.appends.get(value)
            words = f"{shown(value, 40)} was read in line {line}"
            if append is None or append.invoked_line > line:
                findings.add("invented", f"{words}, and not appended before", line)
            elif append.failed:
                findings.add("aborted", f"{words}; {append} had failed", append.invoked_line, line)
            if value in seen:
                findings.add("duplicated", f"{words} more than once", line)
            seen.add(value)

    def _check_times(self, findings: Findings, read: Operation, values: tuple[Value, ...]) -> None:
        """Check that no append stands before one that had been acknowledged when it was called."""
        later: Operation | None = None
        for value in reversed(values):
            append = self.appends.get(value)
            if append is None:
                continue
            if later is not None and later.certain_from < append.invoked_line:
                how = (
                    f"the read of line {read.ended_line} has {shown(value, 40)} before "
                    f"{shown(later.value, 40)}: {append} was called after {later}"
                )
                findings.add("reordered", how, later.ended_line, append.invoked_line)
            if later is None or append.certain_from < later.certain_from:
                later = append

    def _check_agreement(
        self, findings: Findings, followers: dict[Value, dict[Value, Operation]]
    ) -> None:
        """Remove values that no other value stands before, again and again: a cycle is left."""
        waits: dict[Value, int] = {}
        for there in followers.values():
            for value in there:
                waits[value] = waits.get(value, 0) + 1
        ready = [value for value in followers if value not in waits]
        left = followers.keys() | waits.keys()
        while ready:
            value = ready.pop()
            left.discard(value)
            for follower in followers.get(value, {}):
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        if not left:
            return
        cycle = _cycle(followers, left)
        steps = [
            f"{shown(first, 40)} before {shown(second, 40)} (line "
            f"{followers[first][second].ended_line})"
            for first, second in pairwise([*cycle, cycle[0]])
        ]
        lines = [followers[a][b].ended_line for a, b in pairwise([*cycle, cycle[0]])]
        findings.add("disagreeing", "reads have " + ", ".join(steps[:8]), *lines[:8])


def _cycle(followers: dict[Value, dict[Value, Operation]], left: set[Value]) -> list[Value]:
    """Return a cycle among values of which each has another one before it."""
    before: dict[Value, Value] = {}
    for value in left:
        for follower in followers.get(value, {}):
            if follower in left:
                before.setdefault(follower, value)
    value = next(iter(left))
    passed: dict[Value, int] = {}
    path: list[Value] = []
    while value not in passed:
        passed[value] = len(path)
        path.append(value)
        value = before[value]
    return path[passed[value] :][::-1]
