"""A reader of EDN, the notation of Clojure, as far as histories of Jepsen use it."""

from __future__ import annotations

import math
import re

from dledger.declared_error import DeclaredError
from jepsen_like.history.value import NESTED_MAX, Map, Value

_TOKEN = re.compile(
    r"""[\s,]*+(?:;[^\n]*+[\s,]*+)*+(?:
    (?P<open>\#\{|[\[({])
    |(?P<close>[\])}])
    |(?P<string>"(?:[^"\\]|\\.)*+")
    |(?P<discard>\#_)
    |(?P<tag>\#(?:[A-Za-z]|:)[^\s,"\[\](){};]*)
    |(?P<atom>[^\s,"\[\](){};]+)
    )""",
    re.VERBOSE,
)
_NOTHING = re.compile(r"[\s,]*+(?:;[^\n]*+[\s,]*+)*+")
_INTEGER = re.compile(r"[+-]?[0-9]+N?")
_FLOAT = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?M?")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}
_NAMES: dict[str, Value] = {"nil": None, "true": True, "false": False}
_CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
# Longer numbers are not values of a workload, and cost much time to read.
_DIGITS_MAX = 40


class NotEdn(DeclaredError, ValueError):
    """A text is not EDN, or more of it than this reader knows."""

    problem: str


def read_forms(text: str) -> list[Value]:
    """Return every form of a text, one after another.

    Keywords and symbols become strings, without the colon; vectors and lists tuples; sets frozen
    sets; maps `Map`s. Tags, and the namespaces of maps, are dropped, and the values after them are
    kept.

    Raises NotEdn.
    """
    reader = _Reader(text)
    forms: list[Value] = []
    while not reader.at_end():
        reader.read_one(forms, NESTED_MAX)
    return forms


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def at_end(self) -> bool:
        """Return whether only spaces and comments follow."""
        match = _NOTHING.match(self._text, self._at)
        return match is not None and match.end() == len(self._text)

    def read_into(self, forms: list[Value], depth: int) -> str | None:
        """Read one form; return the bracket instead if one closes here."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise NotEdn(self._told("the text ends early" if self.at_end() else "cannot be read"))
        if depth == 0:
            raise NotEdn(f"nested deeper than {NESTED_MAX} levels")
        self._at = match.end()
        kind, token = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "close":
            return token
        if kind == "open":
            forms.append(self._collection(token, depth - 1))
        elif kind == "discard":
            self.read_one([], depth - 1)
        elif kind == "tag":
            self.read_one(forms, depth - 1)
        elif kind == "string":
            forms.append(_ESCAPED.sub(_unescaped, token[1:-1]))
        else:
            forms.append(_atom(token))
        return None

    def read_one(self, forms: list[Value], depth: int) -> None:
        """Read one form, and refuse a bracket that closes."""
        bracket = self.read_into(forms, depth)
        if bracket is not None:
            raise NotEdn(self._told(f"{bracket} where a value must stand"))

    def _collection(self, opening: str, depth: int) -> Value:
        inner: list[Value] = []
        while (bracket := self.read_into(inner, depth)) is None:
            pass
        if bracket != _CLOSING[opening]:
            raise NotEdn(self._told(f"{opening} is closed by {bracket}"))
        if opening == "#{":
            return frozenset(inner)
        if opening != "{":
            return tuple(inner)
        if len(inner) % 2:
            raise NotEdn(self._told("a map has a key without a value"))
        return Map(zip(inner[::2], inner[1::2], strict=True))

    def _told(self, problem: str) -> str:
        return f"{problem} at column {self._at + 1}"


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "u" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code not in _ESCAPES:
        raise NotEdn(f"unknown escape \\{code} in a string")
    return _ESCAPES[code]


def _atom(token: str) -> Value:
    if token[0] == ":":
        if len(token) == 1:
            raise NotEdn("a colon without a name")
        return token[1:]
    if token in _NAMES:
        return _NAMES[token]
    if len(token) <= _DIGITS_MAX:
        if _INTEGER.fullmatch(token):
            return int(token.rstrip("N"))
        if _FLOAT.fullmatch(token):
            number = float(token.rstrip("M"))
            if math.isinf(number):
                raise NotEdn(f"{token} is too large to be kept")
            return number
    elif token.lstrip("+-")[:1].isdigit():
        raise NotEdn(f"a number of more than {_DIGITS_MAX} digits")
    return token
