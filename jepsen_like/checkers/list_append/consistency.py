"""Checks transactions on lists: strict serializability, or less if the header says so."""

from __future__ import annotations

from typing import NamedTuple

from jepsen_like.checkers.checker import Request, counted, wrong_value
from jepsen_like.checkers.list_append.cycles import Cycle, find_cycles
from jepsen_like.checkers.list_append.dependencies import Dependencies
from jepsen_like.checkers.list_append.transaction import transactions_of
from jepsen_like.checkers.list_append.version_order import VersionOrder
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History

# Cycles whose transactions are shown.
CYCLES_SHOWN_MAX = 3


class Consistency(NamedTuple):
    """The promises about the order of transactions."""

    sessions: bool = False
    real_time: bool = False
    allowed: tuple[str, ...] = ()


CONSISTENCIES = {
    "strict-serializable": Consistency(sessions=True, real_time=True),
    "session-serializable": Consistency(sessions=True),
    "serializable": Consistency(),
    "snapshot-isolation": Consistency(allowed=("G2",)),
    "read-committed": Consistency(allowed=("G2", "G-nonadjacent", "G-single")),
}


def check_list_append(history: History, request: Request) -> Report:
    """Check transactions of `["append", key, value]` and `["r", key, list]`.

    `consistency` in the header is one of `CONSISTENCIES`, the first unless given.
    """
    name = history.header.setting("consistency", "strict-serializable")
    consistency = CONSISTENCIES.get(name) if isinstance(name, str) else None
    if consistency is None:
        raise wrong_value(history, 1, f"consistency is one of {', '.join(CONSISTENCIES)}", name)
    findings = Findings((*request.allowed, *consistency.allowed))
    transactions = transactions_of(history)
    order = VersionOrder(history, transactions)
    order.check(findings)
    observed = order.observed()
    happened = [
        one
        for one in transactions
        if one.operation.ok or (one in observed and not one.operation.failed)
    ]
    dependencies = Dependencies(order, happened)
    cycles, ended_early = find_cycles(
        dependencies,
        sessions=consistency.sessions,
        real_time=consistency.real_time,
        out_of_time=request.bounds.out_of_time,
    )
    text: list[str] = []
    for cycle in cycles:
        lines = [happened[number].operation.invoked_line for number in cycle.numbers]
        where = ", ".join(map(str, lines[:8]))
        how = f"{len(lines)} transactions have no order: those of lines {where}"
        findings.add(cycle.name, how, *lines)
    for cycle in cycles[:CYCLES_SHOWN_MAX]:
        text.extend(_told(dependencies, cycle))
    certain = sum(one.operation.ok for one in transactions)
    summary = f"{name}: {counted(certain, 'transaction')} on {counted(len(order.lists), 'list')}"
    unknown = None
    if not any(one.reads() for one in transactions):
        unknown = "nothing was read"
    elif ended_early:
        unknown = "given up, for the time is over"
    figures = {"transactions": len(transactions), "ok": certain, "cycles": len(cycles)}
    return findings.report(summary, unknown, figures, text)


def _told(dependencies: Dependencies, cycle: Cycle) -> list[str]:
    names = {number: f"T{position}" for position, number in enumerate(cycle.numbers, 1)}
    text = [f"{cycle.name}:"]
    for number, name in names.items():
        transaction = dependencies.transactions[number]
        text.append(f"  {name} ({transaction.place()}): {transaction.told()}")
    following = [*cycle.numbers[1:], cycle.numbers[0]]
    for first, second, kind in zip(cycle.numbers, following, cycle.kinds, strict=True):
        text.append(f"  {dependencies.told(first, second, kind, names)}")
    return text
