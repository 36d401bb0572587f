"""A bank: transfers move money, and each read finds all of it."""

from __future__ import annotations

from jepsen_like.checkers.checker import Request, counted, refuse_other_functions, wrong_value
from jepsen_like.checkers.models.counter import is_number
from jepsen_like.checkers.report import Findings, Report
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value, listed, shown

FUNCTIONS = frozenset({"transfer", "read"})


def check_bank(history: History, request: Request) -> Report:
    """Check `transfer` and `read` (a map of account to balance).

    `total` in the header is the sum of all balances; without it, the sum of the first read counts,
    which says nothing of a bank that is read once. Each key is a bank of its own.
    """
    refuse_other_functions(history, FUNCTIONS)
    findings = Findings(request.allowed)
    total = history.header.setting("total")
    if total is not None and not is_number(total):
        raise wrong_value(history, 1, "total in the header is a number", total)
    firsts: dict[Value, tuple[Operation, Map]] = {}
    reads = 0
    for operation in history.operations:
        if operation.function != "read" or not operation.ok:
            continue
        reads += 1
        balances = _balances(history, operation)
        first, expected = firsts.setdefault(operation.key, (operation, balances))
        _check_read(findings, operation, balances, first, expected, total)
    transfers = len(history.operations) - sum(o.function == "read" for o in history.operations)
    summary = f"{counted(transfers, 'transfer')} and {counted(reads, 'read')}"
    unknown = None if reads else "nothing was read"
    if reads and total is None and reads == len(firsts):
        unknown = "each bank was read once only, and the header names no total"
    return findings.report(summary, unknown, {"reads": reads, "transfers": transfers})


def _balances(history: History, read: Operation) -> Map:
    balances = read.result
    if not isinstance(balances, Map):
        line = read.ended_line
        raise wrong_value(history, line, "read returns a map of account to balance", balances)
    for account, balance in balances.items():
        if not is_number(balance):
            name = f"the balance of {shown(account, 40)} is a number"
            raise wrong_value(history, read.ended_line, name, balance)
    return balances


def _check_read(
    findings: Findings,
    read: Operation,
    balances: Map,
    first: Operation,
    expected: Map,
    total: Value,
) -> None:
    line = read.ended_line
    if balances.keys() != expected.keys():
        other = listed(balances.keys() ^ expected.keys())
        how = f"the reads of lines {first.ended_line} and {line} differ in accounts {other}"
        findings.add("other accounts", how, first.ended_line, line)
    found = sum(balances.values())  # type: ignore[arg-type] # they are numbers
    wanted = sum(expected.values()) if total is None else total  # type: ignore[arg-type]
    if found != wanted:
        where = f"the read of line {first.ended_line}" if total is None else "the header"
        how = f"the read of line {line} finds {found} in all; {where} has {wanted}"
        findings.add("wrong total", how, line)
    negative = {name: value for name, value in balances.items() if value < 0}  # type: ignore[operator]
    if negative:
        how = f"the read of line {line} finds {shown(negative)}"
        findings.add("negative", how, line)
