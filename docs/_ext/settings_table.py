"""The settings of a node, with the words that stand as comments beside them in the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields

from dledger.config import NodeConfig
from docs._ext.message_tables import table

_FIELD = re.compile(r"    (\w+): [^=#]+(?:=.*?)?(?:  # (.*))?$")
_COMMENT = re.compile(r"    # (.*)$")

# Settings whose names say nearly all: the code has no comment on them.
WORDS = {
    "group": "Name of the group: up to 64 letters, digits, '_', '-' or '.'.",
    "node_id": "Which of the members this is; named by the same rule.",
    "data_dir": "Where the data goes; made if missing. The node takes a folder of its own in it.",
    "store": "Sizes of files: `StoreConfig`.",
    "snapshots": "When the state is saved, and what is kept: `SnapshotPolicy`.",
    "heartbeat_interval_ms": "How often a leader says that it is there.",
}


def comments_of(kind: type) -> dict[str, str]:
    """The comments above or beside each field of a class, by field."""
    found: dict[str, str] = {}
    gathered: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if comment := _COMMENT.match(line):
            gathered.append(comment[1])
        elif field := _FIELD.match(line):
            words = [*gathered, field[2] or ""]
            found[field[1]] = " ".join(filter(None, words))
            gathered = []
        else:
            gathered = []
    return found


def words_of_settings() -> dict[str, str]:
    """What each setting of a node is, in words."""
    said = comments_of(NodeConfig)
    return {
        field.name: said.get(field.name) or WORDS.get(field.name, "")
        for field in fields(NodeConfig)
    }


def node_settings() -> str:
    """A table of all of them."""
    words = words_of_settings()
    return table(
        ("setting", "type", "default", ""),
        [
            (f"`{field.name}`", f"`{_type(field)}`", _default(field), words[field.name])
            for field in fields(NodeConfig)
        ],
    )


def _type(field: Field[object]) -> str:
    return str(field.type).replace("|", "\\|")


def _default(field: Field[object]) -> str:
    if field.default is not MISSING:
        value = field.default
        grouped = type(value) is int and value >= 10_000
        return f"`{value:_}`" if grouped else f"`{value!r}`"
    if field.default_factory is not MISSING:
        return f"`{getattr(field.default_factory, '__name__', '')}()`"
    return ""
