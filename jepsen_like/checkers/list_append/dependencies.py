"""The dependencies between transactions, and their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from itertools import pairwise, product
from typing import NamedTuple

from jepsen_like.checkers.list_append.transaction import Transaction
from jepsen_like.checkers.list_append.version_order import VersionOrder
from jepsen_like.history.value import Value, shown

# Pairs of readers and unread appends of a key. If there are more, only those of the last readers
# and the first appends are taken, which are the ones that real time can contradict.
PAIRS_MAX = 10_000
EXTREMES = 50


class Kind(IntFlag):
    """Why one transaction comes before another."""

    WW = 1  # the other appended after it
    WR = 2  # the other read what it appended
    RW = 4  # it read a list before the other appended to it
    PROCESS = 8  # the same process did the other afterwards
    REALTIME = 16  # it had ended when the other was called


class Reason(NamedTuple):
    """The key of a dependency, and its values."""

    key: Value
    first: Value = None
    second: Value = None


class Dependencies:
    """Edges between transactions, which are numbered in the order of their calls."""

    def __init__(self, order: VersionOrder, transactions: Sequence[Transaction]) -> None:
        self.transactions = transactions
        self.edges: list[dict[int, Kind]] = [{} for _ in transactions]
        self._numbers = {one: number for number, one in enumerate(transactions)}
        self._reasons: dict[tuple[int, int, Kind], Reason] = {}
        self._add_data(order)
        self._add_unread(order)
        self._add_processes()
        self._add_real_time()

    def _add(
        self, first: Transaction | None, second: Transaction | None, kind: Kind, reason: Reason
    ) -> None:
        before = self._numbers.get(first) if first is not None else None
        after = self._numbers.get(second) if second is not None else None
        if before is None or after is None or before == after:
            return
        there = self.edges[before]
        there[after] = there.get(after, Kind(0)) | kind
        self._reasons.setdefault((before, after, kind), reason)

    def _add_data(self, order: VersionOrder) -> None:
        for key, elements in order.lists.items():
            for first, second in pairwise(elements):
                writers = order.writers.get((key, first)), order.writers.get((key, second))
                self._add(*writers, Kind.WW, Reason(key, first, second))
        for reader in self.transactions:
            for key, elements in order.seen[reader]:
                longest = order.lists.get(key, ())
                if longest[: len(elements)] != elements:
                    continue
                if elements:
                    writer = order.writers.get((key, elements[-1]))
                    self._add(writer, reader, Kind.WR, Reason(key, elements[-1], elements))
                if len(elements) < len(longest):
                    follower = longest[len(elements)]
                    writer = order.writers.get((key, follower))
                    self._add(reader, writer, Kind.RW, Reason(key, elements, follower))

    def _add_unread(self, order: VersionOrder) -> None:
        """Add edges to appends that are in no list, from all that read the longest one."""
        unread: dict[Value, list[tuple[Transaction, Value]]] = {}
        for (key, value), writer in order.writers.items():
            if writer in self._numbers and value not in order.lists.get(key, ()):
                unread.setdefault(key, []).append((writer, value))
        readers: dict[Value, list[Transaction]] = {}
        for reader in self.transactions:
            for key, elements in order.seen[reader]:
                if elements == order.lists.get(key, ()):
                    readers.setdefault(key, []).append(reader)
        for key, appended in unread.items():
            longest = order.lists.get(key, ())
            there = readers.get(key, [])
            writers = appended
            if len(there) * len(writers) > PAIRS_MAX:
                there = there[-EXTREMES:]
                appended.sort(key=lambda one: one[0].operation.certain_from)
                writers = appended[:EXTREMES]
            for reader, (writer, value) in product(there, writers):
                self._add(reader, writer, Kind.RW, Reason(key, longest, value))
            if longest:
                last = order.writers.get((key, longest[-1]))
                for writer, value in writers:
                    self._add(last, writer, Kind.WW, Reason(key, longest[-1], value))

    def _add_processes(self) -> None:
        last: dict[int, Transaction] = {}
        for transaction in self.transactions:
            process = transaction.operation.process
            self._add(last.get(process), transaction, Kind.PROCESS, Reason(None))
            if transaction.operation.ok:
                last[process] = transaction

    def _add_real_time(self) -> None:
        """Add edges from the last transactions that had ended; others follow from these."""
        moments: list[tuple[int, bool, Transaction]] = []
        for one in self.transactions:
            moments.append((one.operation.invoked_line, False, one))
            if one.operation.ok and one.operation.ended_line is not None:
                moments.append((one.operation.ended_line, True, one))
        moments.sort(key=lambda moment: moment[0])
        latest: list[Transaction] = []
        for _, is_end, one in moments:
            if not is_end:
                for before in latest:
                    self._add(before, one, Kind.REALTIME, Reason(None))
                continue
            called = one.operation.invoked_line
            latest = [before for before in latest if before.operation.certain_from > called]
            latest.append(one)

    def kinds(self, first: int, second: int) -> Kind:
        """Return why a transaction comes before another."""
        return self.edges[first].get(second, Kind(0))

    def told(self, first: int, second: int, kind: Kind, names: dict[int, str]) -> str:
        """Return one dependency in plain English."""
        a, b = names[first], names[second]
        key, what, other = self._reasons[first, second, kind]
        name = shown(key, 40)
        match kind:
            case Kind.WW:
                why = (
                    f"{b} appended {shown(other, 40)} to {name} after the {shown(what, 40)} of {a}"
                )
            case Kind.WR:
                why = f"{b} read {name} = {shown(other, 60)}, and {a} appended {shown(what, 40)}"
            case Kind.RW:
                why = f"{a} read {name} = {shown(what, 60)}, without the {shown(other, 40)} of {b}"
            case Kind.PROCESS:
                why = f"process {self.transactions[first].operation.process} did {b} after {a}"
            case _:
                end = self.transactions[first].operation.ended_line
                begin = self.transactions[second].operation.invoked_line
                why = f"{a} had ended in line {end} when {b} was called in line {begin}"
        return f"{a} before {b}: {why}"
