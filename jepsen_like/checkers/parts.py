"""Histories of several parts: each part is checked by its own model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jepsen_like.checkers.changed_queues import joined
from jepsen_like.checkers.checker import Check, Request, wrong_value
from jepsen_like.checkers.report import Problem, Report, Verdict
from jepsen_like.history.header import Header
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Map, Value, shown


def check_parts(find: Callable[[str], Check | None]) -> Check:
    """Return a check of histories whose keys are `[part, key]`.

    The header has `parts`: by name the header of each part, with its `model`, and `allowed`, kinds
    of problems that do not count in it.
    """

    def check(history: History, request: Request) -> Report:
        parts = history.header.setting("parts")
        if not isinstance(parts, Map) or not parts:
            raise wrong_value(history, 1, "parts in the header has a header for each part", parts)
        operations: dict[Value, list[Operation]] = {name: [] for name in parts}
        for one in history.operations:
            key = one.key
            if not isinstance(key, tuple) or len(key) != 2 or key[0] not in operations:
                raise wrong_value(history, one.invoked_line, "a key is [part, key]", key)
            operations[key[0]].append(replace(one, key=key[1]))
        reports = [
            _part(history, name, parts[name], operations[name], request, find) for name in parts
        ]
        order = (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID)
        told = sorted(reports, key=lambda report: order.index(report.verdict))
        summary = "; ".join(report.summary for report in told)
        return joined(replace(told[0], summary=summary), told[1:])

    return check


def _part(
    history: History,
    name: Value,
    settings: Value,
    operations: list[Operation],
    request: Request,
    find: Callable[[str], Check | None],
) -> Report:
    model = settings.get("model") if isinstance(settings, Map) else None
    check = find(model) if isinstance(model, str) else None
    if check is None or not isinstance(settings, Map) or not str(name).isprintable():
        raise history.unreadable(1, f"the part {shown(name, 40)} names no model")
    kinds = settings.get("allowed", ())
    allowed = [kind for kind in kinds if isinstance(kind, str)] if isinstance(kinds, tuple) else []
    header = Header(model=str(model), settings=settings)
    part = replace(history, operations=operations, header=header)
    report = check(part, Request(request.bounds, (*request.allowed, *allowed)))
    problems = [Problem(f"{name} {one.kind}", one.how, one.lines) for one in report.problems]
    return replace(
        report,
        summary=f"{name}: {report.summary}",
        problems=problems,
        counts={f"{name} {kind}": number for kind, number in report.counts.items()},
        allowed=[f"{name} {kind}" for kind in report.allowed],
        figures={f"{name} {figure}": value for figure, value in report.figures.items()},
        text=[f"{name}: {line}" for line in report.text],
    )
