r"""Records of clients in the trace topic: each ends with \x02, with \x01 between its fields.

Any producer may write to that topic, and newer clients add fields at the end. So decoding never
fails: records of unknown kinds are left out. Source: RocketMQ's TraceDataEncoder.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from remoting.wire.field_values import read_int64

FIELD_SEPARATOR: Final = "\x01"
RECORD_SEPARATOR: Final = "\x02"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One step in the life of a message, as a client reported it.

    Attributes:
        kind: "Pub" (sent), "SubBefore" (given to a listener), "SubAfter" (the listener returned),
            "EndTransaction" or "Recall".
        message_id: the id that the producer gave the message (its UNIQ_KEY).
        at_ms: milliseconds since 1970 on the client's clock; 0 if not reported.
        group: of the producer or the consumer; "" if not reported.
        topic: "" if not reported.
        cost_ms: how long the step took; None if not reported.
        succeeded: whether it succeeded; None if not reported.
        request: the id that "SubBefore" and "SubAfter" of one call share, or "".
        details: the other fields by name, as they were written.
    """

    kind: str
    message_id: str
    at_ms: int = 0
    group: str = ""
    topic: str = ""
    cost_ms: int | None = None
    succeeded: bool | None = None
    request: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


# By kind, the fields in their order; older versions lack the last ones. A field with the name of an
# attribute of a record becomes that, the others are details.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pub": (
        *("at_ms", "region", "group", "topic", "message_id", "tags", "keys", "store_host"),
        *("body_bytes", "cost_ms", "message_type", "offset_message_id", "succeeded"),
        "client_host",
    ),
    "SubBefore": (
        *("at_ms", "region", "group", "request", "message_id", "retry_times", "keys"),
        "client_host",
    ),
    "SubAfter": (
        *("request", "message_id", "cost_ms", "succeeded", "keys", "outcome", "at_ms", "group"),
    ),
    "EndTransaction": (
        *("at_ms", "region", "group", "topic", "message_id", "tags", "keys", "store_host"),
        *("message_type", "transaction_id", "state", "from_check"),
    ),
    "Recall": ("at_ms", "region", "group", "topic", "message_id", "succeeded"),
}
_MESSAGE_TYPES: Final = {"0": "normal", "1": "half", "2": "commit", "3": "delayed", "4": "other"}
_OUTCOMES: Final = {
    "0": "success",
    "1": "timeout",
    "2": "exception",
    "3": "nothing returned",
    "4": "failed",
}
_BLANKS: Final = str.maketrans(FIELD_SEPARATOR + RECORD_SEPARATOR, "  ")
_WORDS: Final = {"message_type": _MESSAGE_TYPES, "outcome": _OUTCOMES}


def encode_trace_record(kind: str, fields: Mapping[str, str]) -> str:
    """Encode one record, with its end.

    Args:
        kind: "Pub", "SubBefore", "SubAfter" or "EndTransaction".
        fields: by the names of `TraceRecord` and of its details; "message_type" and "outcome" are
            numbers. Missing ones are empty. A separator in a value becomes a blank.

    Raises:
        ValueError: the kind has no such field.
    """
    names = _FIELDS[kind]
    if unknown := fields.keys() - set(names):
        raise ValueError(f"{kind} has no field {min(unknown)}")
    # Java's readers count the fields: optional ones at the end must be missing if unknown.
    last = max((names.index(name) for name in fields), default=-1)
    values = [fields.get(name, "").translate(_BLANKS) for name in names[: last + 1]]
    return FIELD_SEPARATOR.join((kind, *values)) + RECORD_SEPARATOR


def decode_trace(body: bytes) -> list[TraceRecord]:
    text = body.decode("utf-8", "backslashreplace")
    read = (_read(part.split(FIELD_SEPARATOR)) for part in text.split(RECORD_SEPARATOR))
    return [record for record in read if record is not None]


def _read(parts: list[str]) -> TraceRecord | None:
    names = _FIELDS.get(parts[0])
    if names is None:
        return None
    # Java writes null as the word "null".
    found = {
        name: value
        for name, value in zip(names, parts[1:], strict=False)
        if value not in ("", "null")
    }
    if "message_id" not in found:
        return None
    taken: dict[str, object] = {}
    for name, convert in _CONVERSIONS.items():
        if name in found:
            value = convert(found.pop(name))
            if value is not None:
                taken[name] = value
    details = {name: _WORDS.get(name, {}).get(value, value) for name, value in found.items()}
    return TraceRecord(kind=parts[0], details=details, **taken)  # type: ignore[arg-type]


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


_CONVERSIONS: Final[Mapping[str, Callable[[str], object]]] = {
    "message_id": str,
    "group": str,
    "topic": str,
    "request": str,
    "at_ms": read_int64,
    "cost_ms": read_int64,
    "succeeded": _truth,
}
