"""Takes the operations of a history in EDN out of the text around them.

Jepsen writes one map a line. Knossos and Elle print a vector or a list of maps, and printers for
people break a map over several lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jepsen_like.history.errors import BadLine

# Brackets that count, and texts in which brackets do not.
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"|;.*|[\[\](){}]')
# After the bracket of a vector of operations comes another form, a comment, or nothing; after that
# of an operation as a vector, its process.
_OPERATIONS_FOLLOW = re.compile(r"[\s,]*(?:[#;\[({\])]|$)")
_CLOSING = {"[": "]", "(": ")", "{": "}"}

Line = tuple[int, str]


def unwrapped(lines: Iterable[Line], bytes_max: int) -> Iterator[Line]:
    """Yield the text of each operation, with the line at which it begins. Raises BadLine."""
    wrapping = _Wrapping(bytes_max)
    for number, text in lines:
        yield from wrapping.take(number, text)
    yield from wrapping.end()


class _Wrapping:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._number = 0  # of the last line
        self._around = ""  # the bracket around the operations
        self._around_at = 0
        self._depth = 0  # how many brackets of the operation are open
        self._begun: list[str] = []  # its lines so far
        self._begun_at = 0
        self._begun_bytes = 0

    def take(self, number: int, text: str) -> Iterator[Line]:
        """Take a line; yield the operations that end in it."""
        self._number = number
        told = 0  # how much of the line was taken
        if not self._begun:
            self._begun_at, self._begun_bytes = number, 0
        for match in _BRACKET.finditer(text):
            if match[0] in _CLOSING:
                if self._opens_all(match):
                    self._around, self._around_at, told = match[0], number, match.end()
                else:
                    self._depth += 1
            elif match[0] in _CLOSING.values():
                if self._around and not self._depth:
                    yield number, text[told : match.start()]
                    self._close_all(match[0])
                    told = match.end()
                elif self._depth > 1:
                    self._depth -= 1
                else:
                    yield self._begun_at, "\n".join([*self._begun, text[told : match.end()]])
                    self._begun, self._depth = [], 0
                    self._begun_at, self._begun_bytes, told = number, 0, match.end()
        if self._depth:
            self._begin(text[told:])
        elif told < len(text):
            yield number, text[told:]

    def end(self) -> Iterator[Line]:
        """End the text; yield an operation that has not ended."""
        if self._begun:
            yield self._begun_at, "\n".join(self._begun)
        if self._around:
            raise BadLine(
                f"the {self._around} of line {self._around_at} is not closed: if the file was cut "
                "off, close it to check the rest",
                self._number,
            )

    def _opens_all(self, match: re.Match[str]) -> bool:
        inside = self._around or self._depth or match[0] == "{"
        return not inside and _OPERATIONS_FOLLOW.match(match.string, match.end()) is not None

    def _close_all(self, bracket: str) -> None:
        if bracket != _CLOSING[self._around]:
            how = f"{self._around} of line {self._around_at} is closed by {bracket}"
            raise BadLine(how, self._number)
        self._around = ""

    def _begin(self, text: str) -> None:
        self._begun.append(text)
        self._begun_bytes += len(text)
        if self._begun_bytes > self._bytes_max:
            raise BadLine(f"the operation is longer than {self._bytes_max} bytes", self._begun_at)
