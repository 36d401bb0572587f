"""Reads events from the files of Jepsen: histories in EDN, and lines of its log."""

from __future__ import annotations

import re

from jepsen_like.history.edn import NotEdn, read_forms
from jepsen_like.history.errors import BadLine
from jepsen_like.history.json_lines import (
    checked_function,
    checked_member,
    checked_process,
    checked_type,
)
from jepsen_like.history.operation import Event, EventType
from jepsen_like.history.value import Map, Value, shown

# `INFO  jepsen.util - 3 :invoke :cas [1 2]`; later releases put a date before and a thread between.
LOGGED_EVENT = re.compile(
    r"\bjepsen\.util\s*[-:]\s*(?P<process>\S+)\s+:(?P<type>invoke|ok|fail|info)"
    r"\s+:?(?P<function>[^\s:]\S*)(?P<rest>.*)$"
)
# Other lines of a log, such as those of the set-up of a test.
_OTHER_LOGGED = re.compile(r"\b(TRACE|DEBUG|INFO|WARN|ERROR)\b")
KEYED_PAIR = 2
# An operation as a vector, as Knossos wrote it at first; the last two may be missing.
ROW = ("process", "type", "f", "value", "error")
ROW_LEAST = 3


def parse_edn_event(line: int, text: str, *, keyed: bool = False) -> Event | None:
    """Read an operation of Jepsen's: a map, or a vector of process, type, function and value.

    Keys may have a namespace. Elle's histories may leave out fields that are the same in all
    events: process 0, and the function `txn`. With `keyed`, values are pairs of a key and a value,
    as Jepsen's independent workloads have them. Returns None for an empty text. Raises BadLine.
    """
    forms = _forms(text)
    if not forms:
        return None
    (form,) = forms if len(forms) == 1 else (None,)
    if isinstance(form, tuple) and ROW_LEAST <= len(form) <= len(ROW):
        form = Map(zip(ROW, form, strict=False))
    if not isinstance(form, dict):
        raise BadLine("an operation is one map of EDN, as {:process 0, :type :invoke, :f :read}")
    fields = {str(name).rpartition("/")[2]: value for name, value in form.items()}
    time = fields.get("time", 0)
    # Jepsen's workers read the clock before they take their turn, so its times may go back a
    # little; the order of the lines is the order of events.
    if type(time) is not int or time < 0:
        raise BadLine(f":time is {shown(time, 40)}, not nanoseconds from 0")
    if fields.get("process") is None:
        fields["process"] = 0
    if "f" not in fields and _is_transaction(fields.get("value")):
        fields["f"] = "txn"
    for name in ("type", "f"):
        if name not in fields:
            raise BadLine(f":{name} is missing")
    member = fields.get("node")
    key, value = fields.get("key"), fields.get("value")
    if keyed:
        key, value = _pair(fields["process"], value)
    return Event(
        line,
        checked_process(fields["process"]),
        time,
        checked_type(fields["type"]),
        checked_function(fields["f"]),
        key,
        value,
        fields.get("error"),
        checked_member(member) if isinstance(member, str) else None,
    )


def parse_logged_event(line: int, text: str, *, keyed: bool = False) -> Event | None:
    """Read a line of Jepsen's log. Return None if it is not about an operation. Raises BadLine."""
    match = LOGGED_EVENT.search(text)
    if match is None:
        if "jepsen.util" not in text and _OTHER_LOGGED.search(text):
            return None
        raise BadLine("not a line of Jepsen's log: INFO jepsen.util - PROCESS :TYPE :F VALUE")
    forms = _forms(match["rest"])
    value = forms[0] if forms else None
    error = forms[1] if len(forms) > 1 else None
    event_type = checked_type(match["type"])
    # `:info :write :timed-out`: the error takes the place of the value.
    if event_type in (EventType.FAIL, EventType.INFO) and match["rest"].split()[:1] == [
        f":{value}"
    ]:
        value, error = None, value
    processes = _forms(match["process"])
    if len(processes) != 1:
        raise BadLine(f"process is {shown(match['process'], 40)}, neither a number nor a name")
    process = processes[0]
    key: Value = None
    if keyed:
        key, value = _pair(process, value)
    checked = checked_process(process)
    function = checked_function(match["function"])
    return Event(line, checked, 0, event_type, function, key, value, error)


def _forms(text: str) -> list[Value]:
    try:
        return read_forms(text)
    except NotEdn as error:
        raise BadLine(f"not EDN: {error}") from None


def _is_transaction(value: Value) -> bool:
    return isinstance(value, tuple) and all(isinstance(step, tuple) for step in value)


def _pair(process: Value, value: Value) -> tuple[Value, Value]:
    if isinstance(process, str) or value is None:
        return None, value
    if isinstance(value, tuple) and len(value) == KEYED_PAIR:
        return value[0], value[1]
    raise BadLine(f"value {shown(value, 40)} is no pair of key and value: leave out --keyed")
