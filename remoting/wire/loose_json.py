"""JSON as RocketMQ's Java parts write it: numbers and whole objects may stand as keys, unquoted.

`{0:"a"}` and `{{"queueId":0,"topic":"T"}:{...}}` are read as if their keys were text: the number's
digits, or the object's own JSON with its names sorted and no spaces. Standard JSON is parsed by the
standard library; the slow reader here starts only where that one gives up.
"""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Final, TypeAlias

from remoting.wire.errors import BodyMalformed

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

# The deepest body of the protocol has eight levels.
MAX_DEPTH: Final = 64

_STANDARD: Final = json.JSONDecoder(strict=False)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][-+]?\d{1,3})?")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]{0,255}")
_CONSTANTS: Final[dict[str, JsonValue]] = {"true": True, "false": False, "null": None}


class _LooseText(Exception):
    """The text is not even loosely JSON; the argument is the reason."""


def parse_json(body_name: str, body: bytes) -> JsonValue:
    """Read a JSON body, standard or as fastjson writes it.

    Args:
        body_name: which body it is, for the error.
        body: UTF-8 text; bytes that are not UTF-8 are read as U+FFFD.

    Raises:
        BodyMalformed: it is not JSON, or nests deeper than 64 levels.
    """
    text = body.decode("utf-8", "replace")
    try:
        try:
            value: JsonValue = _STANDARD.decode(text)
        except ValueError:
            value = _LooseReader(text).read()
        return _printable(value, 0) if "\\ud" in text or "\\uD" in text else value
    except (ValueError, RecursionError, _LooseText) as error:
        raise BodyMalformed(body_name, f"not JSON ({error!s:.80})") from None


def compact_json(value: object) -> str:
    """Standard JSON without spaces, all ASCII: the Go client cannot read a route with spaces."""
    return json.dumps(value, separators=(",", ":"))


class _LooseReader:
    """Reads one text once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> JsonValue:
        value = self._value(0)
        if self._peek():
            raise _LooseText(f"more text at {self._at}")
        return value

    def _peek(self) -> str:
        """The next character that is no space, or "" at the end."""
        space = _SPACE.match(self._text, self._at)
        if space is not None:
            self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise _LooseText(f"no {character} at {self._at}")
        self._at += 1

    def _value(self, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise _LooseText(f"deeper than {MAX_DEPTH} levels")
        character = self._peek()
        if character == "{":
            return self._object(depth)
        if character == "[":
            return self._array(depth)
        if character == '"':
            return self._string()
        word = _WORD.match(self._text, self._at)
        if word is not None and word.group() in _CONSTANTS:
            self._at = word.end()
            return _CONSTANTS[word.group()]
        return self._number()

    def _string(self) -> str:
        text, self._at = scanstring(self._text, self._at + 1, False)
        return str(text)

    def _number(self) -> int | float:
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise _LooseText(f"no value at {self._at}")
        self._at = number.end()
        if number.group(1) or number.group(2):
            return float(number.group())
        return int(number.group())

    def _key(self, depth: int) -> str:
        character = self._peek()
        if character == '"':
            return self._string()
        if character == "{":
            return json.dumps(self._value(depth + 1), separators=(",", ":"), sort_keys=True)
        word = _WORD.match(self._text, self._at)
        if word is not None:
            self._at = word.end()
            return word.group()
        return str(self._number())

    def _object(self, depth: int) -> JsonValue:
        self._expect("{")
        values: dict[str, JsonValue] = {}
        if self._peek() == "}":
            self._at += 1
            return values
        while True:
            key = self._key(depth)
            self._expect(":")
            values[key] = self._value(depth + 1)
            if self._peek() != ",":
                self._expect("}")
                return values
            self._at += 1

    def _array(self, depth: int) -> JsonValue:
        self._expect("[")
        values: list[JsonValue] = []
        if self._peek() == "]":
            self._at += 1
            return values
        while True:
            values.append(self._value(depth + 1))
            if self._peek() != ",":
                self._expect("]")
                return values
            self._at += 1


def _printable(value: JsonValue, depth: int) -> JsonValue:
    """`value` with lone surrogates in its texts replaced, so that they can be written as UTF-8."""
    if depth > MAX_DEPTH:
        raise _LooseText(f"deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_printable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {str(_printable(k, 0)): _printable(v, depth + 1) for k, v in value.items()}
    return value
