"""Sets: what was added is in every read that begins later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions, wrong_value
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, listed, repeated, shown

FUNCTIONS = frozenset({"add", "read"})


class _Read(NamedTuple):
    operation: Operation
    elements: frozenset[Value]


def check_set(history: History, request: Request) -> Report:
    """Check `add` (an element) and `read` (a list of all elements), each key by itself."""
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    keys: dict[Value, _Set] = {}
    for operation in history.operations:
        if operation.key not in keys:
            keys[operation.key] = _Set(history, findings)
        keys[operation.key].take(operation)
    for one in keys.values():
        one.check()
    figures = {name: sum(one.figures[name] for one in keys.values()) for name in _FIGURES}
    reads, acknowledged = figures["reads"], figures["acknowledged"]
    summary = f"{counted(acknowledged, 'element')} added and {counted(reads, 'read')}"
    unknown = None
    if not reads:
        unknown = "nothing was read"
    elif not acknowledged and not figures["elements_read"]:
        unknown = "nothing was acknowledged, and every read was empty"
    elif acknowledged and figures["never_read"] == acknowledged:
        unknown = "no read began after an element was added"
    return findings.report(summary, unknown, figures)


_FIGURES = (
    *("acknowledged", "unknown", "unknown_and_found", "reads", "elements_read"),
    *("never_read", "stale", "lost"),
)


class _Set:
    def __init__(self, history: History, findings: Findings) -> None:
        self.figures = dict.fromkeys(_FIGURES, 0)
        self._history = history
        self._findings = findings
        self._adds: dict[Value, list[Operation]] = {}
        self._reads: list[_Read] = []

    def take(self, operation: Operation) -> None:
        if operation.function == "add":
            self._adds.setdefault(operation.value, []).append(operation)
        elif operation.ok:
            result = operation.result
            if not isinstance(result, (tuple, frozenset)):
                line = operation.ended_line
                raise wrong_value(self._history, line, "read returns a list", result)
            elements = frozenset(result)
            if len(elements) < len(result):
                how = f"{operation} has {listed(repeated(result))} more than once"
                self._findings.add("duplicated", how, operation.ended_line)
            self._reads.append(_Read(operation, elements))

    def check(self) -> None:
        for read in self._reads:
            self._check_origin(read)
        known = self._known_from()
        self._check_presence(known)
        for adds in self._adds.values():
            certain = any(add.ok for add in adds)
            self.figures["acknowledged"] += certain
            if not certain and any(not add.failed for add in adds):
                self.figures["unknown"] += 1
                self.figures["unknown_and_found"] += adds[0].value in known
        self.figures["reads"] = len(self._reads)
        self.figures["elements_read"] = len({one for read in self._reads for one in read.elements})

    def _check_origin(self, read: _Read) -> None:
        """Check that each element of a read was added before the read ended."""
        for element in read.elements:
            adds = self._adds.get(element, [])
            end = read.operation.ended_line or 0
            begun = [add for add in adds if add.invoked_line < end]
            if not begun:
                when = "added only later" if adds else "never added"
                how = f"{shown(element, 40)} was read in line {end}, and {when}"
                self._findings.add("invented", how, end)
            elif all(add.failed for add in begun):
                how = f"{shown(element, 40)} was read in line {end}; {begun[0]} had failed"
                self._findings.add("aborted", how, begun[0].invoked_line, end)

    def _known_from(self) -> dict[Value, float]:
        """Return the line from which on each element is certainly there."""
        known: dict[Value, float] = {}
        for element, adds in self._adds.items():
            line = min(add.certain_from for add in adds)
            if line != float("inf"):
                known[element] = line
        for read in self._reads:
            end = read.operation.certain_from
            for element in read.elements:
                if end < known.get(element, float("inf")):
                    known[element] = end
        return known

    def _check_presence(self, known: dict[Value, float]) -> None:
        """Check that elements are in each read that begins when they are there."""
        order = sorted(known.items(), key=lambda item: item[1])
        there: set[Value] = set()
        at = 0
        last_with: dict[Value, Operation] = {}
        first_without: dict[Value, Operation] = {}
        last_without: dict[Value, Operation] = {}
        looked_for: set[Value] = set()
        for operation, elements in self._reads:
            while at < len(order) and order[at][1] < operation.invoked_line:
                there.add(order[at][0])
                at += 1
            for element in elements:
                last_with[element] = operation
            for element in there - elements:
                first_without.setdefault(element, operation)
                last_without[element] = operation
            looked_for |= there
        for element in _in_order(first_without, known):
            without = last_without[element]
            last = last_with.get(element)
            lost = last is None or (last.ended_line or 0) < without.invoked_line
            kind = "lost" if lost else "stale"
            self.figures[kind] += 1
            missing = first_without[element] if kind == "stale" else without
            how = (
                f"{shown(element, 40)}, there since line {known[element]:.0f}, is not in the read "
                f"of lines {missing.invoked_line}-{missing.ended_line}"
                + ("; a later read has it" if kind == "stale" else ", nor in any later one")
            )
            self._findings.add(kind, how, int(known[element]), missing.ended_line)
        certain = [one for one, adds in self._adds.items() if any(add.ok for add in adds)]
        self.figures["never_read"] = sum(one not in looked_for for one in certain)


def _in_order(elements: Iterable[Value], known: dict[Value, float]) -> list[Value]:
    return sorted(elements, key=lambda element: known[element])
