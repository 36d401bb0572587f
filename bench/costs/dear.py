"""A costly request, and the reason of its cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

# The reason of the cost, and the request.
Dear: TypeAlias = tuple[str, Command]


def dear(what: str, code: RequestCode, body: bytes = b"", /, **fields: object) -> Dear:
    """Return a request with its fields as text."""
    return what, Command(code, {name: str(value) for name, value in fields.items()}, body)


def by_code(requests: Iterable[Dear]) -> dict[int, dict[str, Command]]:
    """Return the requests by code and description, in the same order."""
    found: dict[int, dict[str, Command]] = {}
    for what, command in requests:
        found.setdefault(command.code, {})[what] = command
    return found
