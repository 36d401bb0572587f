"""Prints rows for a terminal, for a pipe, and as JSON."""

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from dledger.command_line.rows import print_table
from dledger.shown_output import escaped

# The shown part of a body; a terminal's line has room for little more.
PREVIEW_BYTES: Final = 48
# The shown digits of a float: the last digits of percentiles come from rounding.
_FLOAT_DIGITS: Final = 12


def print_rows(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in a terminal; in a pipe, a line for each row, with tabs."""
    numeric = [
        bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(names))
    ]
    print_table(
        names,
        [[_text(value) for value in row] for row in rows],
        words=[name for name, is_number in zip(names, numeric, strict=True) if not is_number],
        pipe_title="\t".join(names),
        title=title,
        title_justify="left",
        no_wrap=False,
        overflow="fold",
    )


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return names of columns of which each is there once: those of a join may be equal."""
    found: dict[str, None] = {}
    for name in names:
        one, number = name, 0
        while one in found or (number and one in names):
            number += 1
            one = f"{name}_{number}"
        found[one] = None
    return list(found)


def json_line(row: Mapping[str, Any]) -> str:
    """Format a row of Arrow's, with maps as dicts, as a line of JSON.

    Bytes are in base64, times in ISO 8601, maps and structures are objects, decimals are numbers,
    NaN and infinities are null; other values are strings.
    """
    return json.dumps({name: _json_value(value) for name, value in row.items()})


def _json_value(value: Any) -> object:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):  # such as a sum of integers by DuckDB
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, Mapping):
        return {str(name): _json_value(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    return str(value)


def _time(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: object) -> str:
    """Format one field on one line: characters that move the cursor or end the line are escaped."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, bytes):
        more = "..." if len(value) > PREVIEW_BYTES else ""
        value = value[:PREVIEW_BYTES].decode("utf-8", "backslashreplace") + more
    if isinstance(value, float):
        value = f"{value:.{_FLOAT_DIGITS}g}"
    return escaped(str(value))
