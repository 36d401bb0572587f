"""The kinds of a broker's commands: their names, and what their members are called.

Source: docs/broker.md, "What the log holds".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from remoting.bodies.topic_config import TopicConfig

Names = tuple[str, ...]
_NO_PARTS: Final[Mapping[str, Names]] = MappingProxyType({})


class CommandKind(NamedTuple):
    """A kind.

    Attributes:
        name: what it is called.
        members: the names of its members; earlier versions have fewer.
        time_at: which member is its time, in milliseconds since 1970; None if it has none.
        parts: the names within a member that is an array of values, or many such arrays.
    """

    name: str
    members: Names
    time_at: int | None = None
    parts: Mapping[str, Names] = _NO_PARTS

    def spelt_out(self, members: Sequence[Any]) -> dict[str, Any]:
        """What a command says, by name.

        Args:
            members: its members, as msgpack has them. Arrays of a length that is not known stay
                arrays.
        """
        told = dict(zip(self.members, members, strict=False))
        for member, names in self.parts.items():
            if isinstance(told.get(member), list):
                told[member] = _named(names, told[member])
        return told


def _named(names: Names, value: list[Any]) -> Any:
    """One array of values by their names, or many of them."""
    if all(isinstance(one, list) for one in value):
        return [_by_name(names, one) for one in value]
    return _by_name(names, value)


def _by_name(names: Names, values: list[Any]) -> Any:
    return dict(zip(names, values, strict=True)) if len(names) == len(values) else values


_QUEUE: Final = ("group", "topic", "queue")
# The log has a topic's configuration in the order of its fields.
_TOPIC: Final = tuple(field.name for field in fields(TopicConfig))
_POPPED: Final = (*_QUEUE, "offset", "popped_ms")

KINDS: Final = {
    1: CommandKind(
        *("put topic", ("topic", "at_ms", "only_if_absent", "max_topics"), 1), {"topic": _TOPIC}
    ),
    2: CommandKind("delete topic", ("topic", "at_ms"), 1),
    3: CommandKind("put group", ("group", "only_if_absent", "max_groups")),
    4: CommandKind("delete group", ("group", "with_offsets")),
    5: CommandKind(
        *("commit offsets", ("offsets", "at_ms", "as_of"), 1), {"offsets": (*_QUEUE, "offset")}
    ),
    6: CommandKind("keep log from", ("first_index", "position", "at_ms"), 2),
    7: CommandKind(
        *("lock queues", ("group", "client_id", "is_lock", "time_ms", "queues"), 3),
        {"queues": ("topic", "queue")},
    ),
    8: CommandKind("lead from", ("node_id", "address")),
    9: CommandKind("raise format", ()),
    10: CommandKind("delay", ("due_ms",)),
    11: CommandKind("deliver", ("position",)),
    12: CommandKind("move delayed", ("position",)),
    13: CommandKind("drop delayed", ("position",)),
    14: CommandKind("prepare", ("group", "due_ms")),
    15: CommandKind("commit", ("position", "due_ms")),
    16: CommandKind("roll back", ("position",)),
    17: CommandKind("checked", ("due_ms", "positions")),
    18: CommandKind("give up", ("position",)),
    19: CommandKind("move half", ("position",)),
    20: CommandKind("put filter", ("group", "topic", "condition", "version", "max_filters")),
    21: CommandKind(
        *("reset offsets", ("group", "topic", "offsets", "at_ms", "as_of"), 3),
        {"offsets": ("queue", "offset")},
    ),
    22: CommandKind("end reset", (*_QUEUE, "offset", "at_ms"), 4),
    23: CommandKind(
        "pop",
        (
            *(*_QUEUE, "popped_ms", "visible_ms", "first", "next", "offsets"),
            *("attempt_id", "begins", "as_of"),
        ),
        3,
    ),
    24: CommandKind("acknowledge popped", ("messages",), None, {"messages": _POPPED}),
    25: CommandKind(
        *("hide popped", ("message", "hidden_ms", "visible_ms"), 1), {"message": _POPPED}
    ),
    26: CommandKind("bury popped", ("message",), None, {"message": _POPPED}),
    27: CommandKind("set mode", ("topic", "group", "name", "shares", "max_modes")),
    30: CommandKind("change settings", ("values", "at_ms"), 1, {"values": ("name", "value")}),
    31: CommandKind("resume", ("position", "group", "due_ms")),
    32: CommandKind("forbid", ("group", "topic", "is_forbidden", "max_forbidden")),
    34: CommandKind("redrive", ("topic", "queue", "offset", "position", "begin")),
}
