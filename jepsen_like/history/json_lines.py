"""The history format of this project: a header line, and one JSON object for each event."""

from __future__ import annotations

import json
from typing import TypeGuard

from jepsen_like.history.errors import BadLine
from jepsen_like.history.header import FORMAT_VERSION, Header
from jepsen_like.history.operation import Event, EventType
from jepsen_like.history.value import Map, Value, frozen, shown

VERSION_FIELD = "history_format"
# 292 years of nanoseconds: the largest signed 64-bit number, in which other programs keep times.
TIME_NS_MAX = 2**63 - 1
_REQUIRED = frozenset({"process", "time_ns", "type", "function"})
_FIELDS = _REQUIRED | {"key", "value", "error", "member"}


def parse_header(text: str) -> Header:
    """Read the first line. Raises BadLine."""
    fields = _object(text)
    version = fields.get(VERSION_FIELD)
    if version is None:
        raise BadLine(f'no header: the first line must be {{"{VERSION_FIELD}": {FORMAT_VERSION}}}')
    if type(version) is not int or version < 1:
        raise BadLine(f"{VERSION_FIELD} is {shown(version, 40)}, not a version number")
    if version > FORMAT_VERSION:
        raise BadLine(
            f"{VERSION_FIELD} {version} is newer than this program, which reads {FORMAT_VERSION}"
        )
    workload, model, seed = fields.get("workload"), fields.get("model"), fields.get("seed")
    for name, value in (("workload", workload), ("model", model)):
        if value is not None and not _is_line(value):
            raise BadLine(f"{name} is {shown(value, 40)}, not a name")
    if seed is not None and type(seed) is not int:
        raise BadLine(f"seed is {shown(seed, 40)}, not a whole number")
    return Header(
        workload if isinstance(workload, str) else None,
        model if isinstance(model, str) else None,
        seed if isinstance(seed, int) else None,
        fields,
    )


def parse_event(line: int, text: str) -> Event:
    """Read the line of an event. Raises BadLine."""
    fields = _object(text)
    if fields.keys() - _FIELDS:
        names = ", ".join(sorted(map(str, fields.keys() - _FIELDS)))
        raise BadLine(f"unknown field {names}: an event has {', '.join(sorted(_FIELDS))}")
    missing = _REQUIRED - fields.keys()
    if missing:
        raise BadLine(f"field {', '.join(sorted(missing))} is missing")
    return Event(
        line,
        checked_process(fields["process"]),
        checked_time_ns(fields["time_ns"]),
        checked_type(fields["type"]),
        checked_function(fields["function"]),
        fields.get("key"),
        fields.get("value"),
        fields.get("error"),
        checked_member(fields.get("member")),
    )


def _is_line(value: Value) -> TypeGuard[str]:
    """Return whether a value is a text that can stand in a line: it moves no cursor."""
    return isinstance(value, str) and value.isprintable()


def checked_process(process: Value) -> int | str:
    """Return a client's number or an observer's name. Raises BadLine."""
    if _is_line(process) and process:
        return process
    if type(process) is int and process >= 0:
        return process
    raise BadLine(f"process is {shown(process, 40)}, neither a number from 0 nor a name")


def checked_time_ns(time_ns: Value) -> int:
    """Return a time of a monotonic clock. Raises BadLine."""
    if type(time_ns) is int and 0 <= time_ns <= TIME_NS_MAX:
        return time_ns
    raise BadLine(
        f"time_ns is {shown(time_ns, 40)}, not nanoseconds of a monotonic clock: "
        f"a whole number from 0 to {TIME_NS_MAX}"
    )


_TYPES: dict[Value, EventType] = {name.value: name for name in EventType}


def checked_type(name: Value) -> EventType:
    """Return the type of an event. Raises BadLine."""
    found = _TYPES.get(name)
    if found is None:
        raise BadLine(f"type is {shown(name, 40)}, not one of {', '.join(EventType)}")
    return found


def checked_function(function: Value) -> str:
    """Return the name of a function. Raises BadLine."""
    if _is_line(function) and function:
        return function
    raise BadLine(f"function is {shown(function, 40)}, not a name")


def checked_member(member: Value) -> str | None:
    """Return the name of a member, or None. Raises BadLine."""
    if member is None or _is_line(member):
        return member
    raise BadLine(f"member is {shown(member, 40)}, not a name")


def event_line(event: Event) -> str:
    """Return an event as a line, without its end. Empty fields are left out."""
    fields: dict[str, object] = {
        "process": event.process,
        "time_ns": event.time_ns,
        "type": event.type.value,
        "function": event.function,
    }
    for name in ("key", "value", "error", "member"):
        value = getattr(event, name)
        if value is not None:
            fields[name] = value
    return json.dumps(fields, allow_nan=False, separators=(",", ":"))


def _no_constant(name: str) -> Value:
    raise ValueError(f"{name} is no number of JSON")


def _object(text: str) -> Map:
    try:
        found = json.loads(text, parse_constant=_no_constant)
        if not isinstance(found, dict):
            raise BadLine("a line must be one JSON object")
        return Map({name: frozen(value) for name, value in found.items()})
    except json.JSONDecodeError as error:
        raise BadLine(
            f"not JSON ({error.msg} at column {error.colno}); if the recorder was killed, its last "
            "line is cut off: remove that line to check the rest"
        ) from None
    except RecursionError:
        raise BadLine("not JSON of this format: it is nested too deep") from None
    except ValueError as error:
        raise BadLine(str(error)) from None
