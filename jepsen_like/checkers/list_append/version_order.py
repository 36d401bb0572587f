"""The order in which each list grew, by the reads; and impossible reads."""

from __future__ import annotations

from collections.abc import Sequence

from jepsen_like.checkers.list_append.transaction import APPEND, Seen, Step, Transaction
from jepsen_like.checkers.report import Findings
from jepsen_like.history.history import History
from jepsen_like.history.value import Value, listed, repeated, shown


class VersionOrder:
    """The longest list read of each key, and the transactions that appended its elements.

    `seen` has the lists that each transaction saw, without its own appends.
    """

    def __init__(self, history: History, transactions: Sequence[Transaction]) -> None:
        self.lists: dict[Value, tuple[Value, ...]] = {}
        self.writers: dict[tuple[Value, Value], Transaction] = {}
        self.seen: dict[Transaction, list[Seen]] = {}
        self._transactions = transactions
        self._longest_read: dict[Value, Transaction] = {}
        for transaction in transactions:
            for step in transaction.appends():
                self._note_writer(history, transaction, step)
            for step in transaction.reads():
                assert isinstance(step.value, tuple)
                if len(step.value) > len(self.lists.get(step.key, ())):
                    self.lists[step.key] = step.value
                    self._longest_read[step.key] = transaction
            self.seen[transaction] = _seen(transaction)

    def _note_writer(self, history: History, transaction: Transaction, step: Step) -> None:
        before = self.writers.get((step.key, step.value))
        self.writers[step.key, step.value] = transaction
        line = transaction.operation.invoked_line
        if before is not None:
            raise history.unreadable(
                line,
                f"{shown(step.value, 40)} is appended to {shown(step.key, 40)} again (first in "
                f"line {before.operation.invoked_line}): give each append of a key its own value",
            )

    def observed(self) -> set[Transaction]:
        """Return the transactions of which an append was read."""
        found = set()
        for key, elements in self.lists.items():
            for element in elements:
                writer = self.writers.get((key, element))
                if writer is not None:
                    found.add(writer)
        return found

    def check(self, findings: Findings) -> None:
        """Note each read that no order explains."""
        for transaction in self._transactions:
            _check_internal(findings, transaction)
            for step in transaction.reads():
                self._check_elements(findings, transaction, step)
            for seen in self.seen[transaction]:
                self._check_intermediate(findings, transaction, seen)

    def _check_elements(self, findings: Findings, reader: Transaction, read: Step) -> None:
        elements = read.value
        assert isinstance(elements, tuple)
        line = reader.operation.ended_line
        words = f"line {line} read {shown(read.key, 40)} = {shown(elements, 60)}"
        if len(set(elements)) < len(elements):
            twice = listed(repeated(elements))
            findings.add("duplicated", f"{words}, with {twice} more than once", line)
        before: Value = None
        for element in elements:
            writer = self.writers.get((read.key, element))
            if writer is not None:
                expected = writer.append_before(read.key, element)
                if expected is not None and expected != before:
                    what = f"{shown(element, 40)} not right behind {shown(expected, 40)}"
                    how = f"{words}, with {what}: both are of the transaction of {writer.place()}"
                    findings.add("incompatible order", how, writer.operation.invoked_line, line)
            before = element
            if writer is None:
                findings.add("invented", f"{words}; nobody appended {shown(element, 40)}", line)
            elif writer.operation.failed:
                where = writer.place().partition(",")[0]
                how = (
                    f"{words}; the transaction of {where} that appended {shown(element, 40)} failed"
                )
                findings.add("G1a", how, writer.operation.invoked_line, line)
        longest = self.lists.get(read.key, ())
        if longest[: len(elements)] != elements:
            other = self._longest_read[read.key].operation.ended_line
            how = f"{words}, which is no beginning of what line {other} read, {shown(longest, 60)}"
            findings.add("incompatible order", how, line, other)

    def _check_intermediate(self, findings: Findings, reader: Transaction, seen: Seen) -> None:
        if not seen.elements:
            return
        last = seen.elements[-1]
        writer = self.writers.get((seen.key, last))
        if writer is None or writer is reader or writer.last_append_to(seen.key) == last:
            return
        line = reader.operation.ended_line
        how = (
            f"line {line} read {shown(seen.key, 40)} = {shown(seen.elements, 60)}, in the middle "
            f"of the transaction of {writer.place()}: {writer.told()}"
        )
        findings.add("G1b", how, writer.operation.invoked_line, line)


def _seen(transaction: Transaction) -> list[Seen]:
    """Return the lists that a transaction first saw, without its own appends before."""
    own: dict[Value, list[Value]] = {}
    found: dict[Value, Seen] = {}
    for step in transaction.steps if transaction.operation.ok else ():
        if step.function == APPEND:
            own.setdefault(step.key, []).append(step.value)
        elif step.value is not None and step.key not in found:
            assert isinstance(step.value, tuple)
            mine = own.get(step.key, [])
            elements = step.value
            if mine and list(elements[-len(mine) :]) == mine:
                elements = elements[: -len(mine)]
            found[step.key] = Seen(step.key, elements)
    return list(found.values())


def _check_internal(findings: Findings, transaction: Transaction) -> None:
    """Check that a transaction sees its own appends, and that its lists only grow by them."""
    if not transaction.operation.ok:
        return
    known: dict[Value, tuple[Value, ...]] = {}
    own: dict[Value, tuple[Value, ...]] = {}
    for step in transaction.steps:
        if step.function == APPEND:
            if step.key in known:
                known[step.key] += (step.value,)
            own[step.key] = (*own.get(step.key, ()), step.value)
        elif isinstance(step.value, tuple):
            expected = known.get(step.key)
            mine = own.get(step.key, ())
            fits = step.value == expected if expected is not None else True
            if not fits or (mine and step.value[-len(mine) :] != mine):
                wanted = expected if expected is not None else mine
                how = (
                    f"the transaction of {transaction.place()} read {shown(step.key, 40)} = "
                    f"{shown(step.value, 60)}, and its own steps before make it {shown(wanted, 60)}"
                )
                findings.add("internal", how, transaction.operation.ended_line)
            known[step.key] = step.value
