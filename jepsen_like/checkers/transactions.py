"""Transactional messages: committed ones are received once, others never."""

from __future__ import annotations

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions
from jepsen_like.checkers.deliveries import RECEIVES, Deliveries, Missing
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, shown

DECISIONS = frozenset({"commit", "rollback"})
FUNCTIONS = frozenset({"prepare"}) | DECISIONS | RECEIVES


def check_transactions(history: History, request: Request) -> Report:
    """Check `prepare`, `commit` and `rollback` (each of a message), `receive` and `drain`.

    A decision may be sent several times. The key names the queue.
    """
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    queues: dict[Value, _Queue] = {}
    for operation in history.operations:
        queues.setdefault(operation.key, _Queue()).take(operation)
    missing = Missing()
    for queue in queues.values():
        queue.deliveries.close()
        queue.deliveries.tell_duplicates(findings)
        queue.check_visibility(findings)
        queue.check_decisions(findings, missing)
    prepared = sum(len(queue.prepares) for queue in queues.values())
    committed = sum(queue.number_of("commit") for queue in queues.values())
    rolled_back = sum(queue.number_of("rollback") for queue in queues.values())
    figures = {"prepared": prepared, "committed": committed, "rolled_back": rolled_back}
    summary = (
        f"{counted(prepared, 'transaction')}: {committed} committed, {rolled_back} rolled back"
    )
    unknown = missing.unknown()
    answered = {one.function for one in history.operations if one.ok}
    if unknown is None and not answered & RECEIVES:
        unknown = "nobody received anything" if answered else "nothing was acknowledged"
    if unknown is None and not prepared:
        unknown = "nothing was prepared"
    return findings.report(summary, unknown, {**figures, "lost": missing.lost})


class _Queue:
    def __init__(self) -> None:
        self.prepares: dict[Value, Operation] = {}
        self.deliveries = Deliveries()
        self._decisions: dict[str, dict[Value, list[Operation]]] = {
            function: {} for function in DECISIONS
        }

    def take(self, operation: Operation) -> None:
        if operation.function in RECEIVES:
            self.deliveries.take(operation)
        elif operation.function == "prepare":
            self.prepares.setdefault(operation.value, operation)
        elif not operation.failed:
            self._decisions[operation.function].setdefault(operation.value, []).append(operation)

    def number_of(self, function: str) -> int:
        """Return the number of messages of which a decision was acknowledged."""
        return sum(any(one.ok for one in there) for there in self._decisions[function].values())

    def check_visibility(self, findings: Findings) -> None:
        """Check that no message is received before its commit was asked for."""
        for message, deliveries in self.deliveries.by_message.items():
            line = deliveries[0].line
            words = f"{shown(message, 40)} was received in line {line}"
            prepare = self.prepares.get(message)
            if prepare is None or prepare.invoked_line > line:
                findings.add("invented", f"{words}, and not prepared before", line)
                continue
            commits = self._decisions["commit"].get(message, [])
            rollbacks = [one for one in self._decisions["rollback"].get(message, []) if one.ok]
            if rollbacks and not any(one.ok for one in commits):
                decision = rollbacks[0]
                findings.add("aborted", f"{words}; {decision}", decision.invoked_line, line)
            elif not commits:
                findings.add("not committed", f"{words}, and nobody committed it", line)
            elif commits[0].invoked_line > line:
                how = f"{words}, before its commit was asked for in line {commits[0].invoked_line}"
                findings.add("early", how, line, commits[0].invoked_line)

    def check_decisions(self, findings: Findings, missing: Missing) -> None:
        """Check that each transaction has one outcome, and that committed messages are received."""
        for message, commits in self._decisions["commit"].items():
            certain = [one for one in commits if one.ok]
            if not certain:
                continue
            commit = min(certain, key=lambda one: one.certain_from)
            rollbacks = [one for one in self._decisions["rollback"].get(message, []) if one.ok]
            if rollbacks:
                how = f"{shown(message, 40)}: both acknowledged, {commit} and {rollbacks[0]}"
                findings.add("decided twice", how, commit.ended_line, rollbacks[0].ended_line)
            if message not in self.deliveries.by_message:
                line = int(commit.certain_from)
                missing.add(findings, self.deliveries, "committed", message, line)
