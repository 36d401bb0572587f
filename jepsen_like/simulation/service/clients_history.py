"""The requests of a run as a history, and the check of that history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jepsen_like.chaos.service import CallFailed
from jepsen_like.checkers.catalogue import CATALOGUE, linearizable
from jepsen_like.checkers.checker import Bounds
from jepsen_like.checkers.checker import Request as CheckRequest
from jepsen_like.checkers.report import Report
from jepsen_like.fingerprint import shortened
from jepsen_like.history.header import Header
from jepsen_like.history.history import History
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.value import Map, Value, frozen
from jepsen_like.simulation.service.machine_error import called
from jepsen_like.simulation.service.request import Request, Told
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.witness import InvariantViolated

# The memory of a search for an order: histories of runs are short.
SEARCH_MEMORY_BYTES = 50_000_000
# By request: the line of its call, and that of its answer.
Lines = Mapping[int, tuple[int, int | None]]


def check_of(service: Service) -> Callable[[History], Report]:
    """Return the check of clients' histories. Raises ValueError if a model's name is unknown."""
    request = CheckRequest(Bounds(memory_bytes_max=SEARCH_MEMORY_BYTES))
    model: object = service.model
    if model is None and service.described is not None:
        model = service.described.model
    if isinstance(model, str):
        if model not in CATALOGUE:
            raise ValueError(f"no model is named {model}: there are {', '.join(sorted(CATALOGUE))}")
        check = CATALOGUE[model].check
    else:
        made = model() if isinstance(model, type) else model
        check = linearizable(made)  # type: ignore[arg-type] # a model, as its docstring says
    return lambda history: check(history, request)


def clients_history(service: Service, requests: Sequence[Request], lines: Lines) -> History:
    """Return the requests as operations, in the order of their calls."""
    header = Header()
    if service.described is not None:
        header = Header(settings=Map({k: frozen(v) for k, v in service.described.settings.items()}))
    operations = [_operation(service, request, lines[request.number]) for request in requests]
    operations.sort(key=lambda operation: operation.invoked_line)
    return History(operations, header, name="clients")


def _operation(service: Service, request: Request, lines: tuple[int, int | None]) -> Operation:
    invoked, ended = lines
    outcome, result, error = outcome_of(service, request)
    function, key, value = request.what, None, _value(request)
    if request.call is not None:
        function, key = request.call.function, frozen(request.call.key)
    unknown = outcome is EventType.INFO
    return Operation(
        process=request.number if request.call is None else request.client,
        function=function,
        key=key,
        value=value,
        invoked_line=invoked,
        invoked_ns=round(request.began_s * 1e9),
        member=request.member or None,
        outcome=outcome,
        result=result,
        ended_line=None if unknown else ended,
        ended_ns=None if unknown or request.ended_s is None else round(request.ended_s * 1e9),
        error=error,
    )


def _value(request: Request) -> Value:
    if request.call is not None:
        return frozen(request.call.value)
    if request.what == "append":
        return request.body.decode("utf-8", "backslashreplace")
    return None


def outcome_of(service: Service, request: Request) -> tuple[EventType, Value, Value]:
    """Return how a request ended, its result, and why it failed.

    Raises InvariantViolated if the service's `answered` raises, or a value is not plain.
    """
    if request.told in (Told.NOTHING, Told.UNKNOWN):
        return EventType.INFO, None, None
    if request.told is Told.NEVER:
        return EventType.FAIL, None, None
    result = request.appended.result if request.appended is not None else request.answer
    if service.described is not None and request.call is not None and not request.call.is_read:
        try:
            result = called("answered", service.described.answered, request.call, result)
        except InvariantViolated as violation:
            if isinstance(violation.__cause__, CallFailed):
                return EventType.FAIL, None, str(violation.__cause__)
            raise
    if request.call is None and not isinstance(result, list | dict | set | tuple):
        return EventType.OK, result, None
    try:
        return EventType.OK, frozen(result), None
    except ValueError as error:
        what = "query" if request.what == "read" else "answered"
        how = f"{what}() gives {shortened(repr(result))}: {error}"
        raise InvariantViolated("clients get plain values", how) from error
