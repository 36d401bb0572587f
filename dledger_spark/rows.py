"""Prints rows for a terminal, for a pipe, and as JSON."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.table import Table

# At most this much of a body is shown; a terminal's line has room for little more.
PREVIEW_BYTES: Final = 48


def print_rows(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table in a terminal; in a pipe, a line for each row, with tabs."""
    if sys.stdout.isatty():
        table = Table(title=title, title_justify="left")
        for at, name in enumerate(names):
            numeric = all(isinstance(row[at], int) for row in rows) and bool(rows)
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_text(value) for value in row))
        Console().print(table, markup=False)
        return
    print("\t".join(names))
    for row in rows:
        print("\t".join(_text(value) for value in row))


def json_line(row: dict[str, Any]) -> str:
    """One row as a line of JSON: bytes in base64, times in ISO 8601, maps as objects."""
    return json.dumps({name: _json_value(value) for name, value in row.items()})


def _json_value(value: Any) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, list):  # a map, as Arrow gives it
        return dict(value)
    return value


def _time(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: object) -> str:
    """One field on one line: characters that move the cursor or end the line are escaped."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, bytes):
        more = "..." if len(value) > PREVIEW_BYTES else ""
        value = value[:PREVIEW_BYTES].decode("utf-8", "backslashreplace") + more
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")
        for sign in str(value)
    )
