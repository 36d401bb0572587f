"""JSON as RocketMQ's Java parts write it: with unquoted numbers and flat objects as keys.

`{0:"a"}` and `{{"queueId":0,"topic":"T"}:{...}}` are parsed with text as keys: the number's digits,
or the object's own JSON with its names sorted and no spaces. An object as a key contains no object;
RocketMQ's keys are message queues. (As text, nested objects would double their escapes with each
level.)

The standard library parses standard JSON. Text that it refuses is rewritten as standard JSON and
parsed once more. Each step is one pass in C over the text or over a list of its parts, so that the
time grows only with the length of the text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Final, TypeAlias

from remoting.wire.errors import BodyMalformed

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class JsonSize:
    """How much one body may hold.

    Attributes:
        values: each takes up to 120 bytes as Python's objects.
        object_keys: objects as keys; each takes more time than other JSON.
    """

    values: int
    object_keys: int


# Bodies that list all of something. The registration of 50 000 topics has half as many values; a
# topic of 1024 queues on 32 brokers has as many keys. The values take 120 MiB and 0.3 s.
LARGE: Final = JsonSize(1 << 20, 1 << 15)

# All other bodies. A request to lock 10 240 queues has 41 000 values. Such a body takes at most
# 30 ms, during which a server does nothing else.
SMALL: Final = JsonSize(1 << 16, 1 << 10)

_STANDARD: Final = json.JSONDecoder(strict=False)

# Making an encoder takes longer than encoding a row of a list.
_compact: Final = json.JSONEncoder(separators=(",", ":")).encode

# A text in quotes, also without its end: the scan never visits a character twice.
_STRING: Final = re.compile(r'("(?:[^"\\]++|\\.)*+"?)', re.DOTALL)

# Replaces each text while the rest is rewritten; not allowed outside of texts.
_MARK: Final = "\0"

_FLAT_OBJECT_AS_KEY: Final = re.compile(r"(\{[^{}]*+\})(?=[ \t\r\n]*+:)")
_BARE_KEY: Final = re.compile(
    r"([{,][ \t\r\n]*+)"
    r"(-?\d{1,40}+(?:\.\d{1,40}+)?|[A-Za-z_$][A-Za-z0-9_$.-]{0,255}+)"
    r"(?=[ \t\r\n]*+:)"
)


def parse_json(
    body_name: str, body: bytes, max_bytes: int | None = None, size: JsonSize = LARGE
) -> JsonValue:
    """Parse a JSON body, standard or as fastjson writes it.

    Args:
        body_name: the kind of body, for the error.
        body: UTF-8 text; other bytes are read as U+FFFD.
        max_bytes: the longest body of this kind; None leaves it to the limit of frames.
        size: how much it may hold.

    Raises:
        BodyMalformed: it is too long, has too many values, is not JSON, or nests deeper than the
            standard library reads (about a thousand levels).
    """
    if max_bytes is not None and len(body) > max_bytes:
        raise BodyMalformed(body_name, f"{len(body)} bytes, at most {max_bytes} are read")
    if len(body) > size.values and _most_values(body) > size.values:
        raise BodyMalformed(body_name, f"more than {size.values} values")
    text = body.decode("utf-8", "replace")
    try:
        try:
            value: JsonValue = _STANDARD.decode(text)
        except ValueError:
            value = _STANDARD.decode(_as_standard(text, size.object_keys))
        return _printable(value) if "\\ud" in text or "\\uD" in text else value
    except (ValueError, RecursionError) as error:
        raise BodyMalformed(body_name, f"not JSON ({error!s:.80})") from None


def compact_json(value: object) -> str:
    """Encode standard JSON without spaces, in ASCII: the Go client cannot read a route with
    spaces.
    """
    return _compact(value)


def _most_values(body: bytes) -> int:
    """Return an upper bound of the number of values: one at each comma and opening bracket."""
    return 1 + body.count(b",") + body.count(b"{") + body.count(b"[")


def _as_standard(text: str, max_object_keys: int) -> str:
    """Quote bare numbers, bare words and flat objects that are keys.

    Raises:
        ValueError: a key cannot be read, or there are too many.
    """
    parts = _STRING.split(text)
    strings = parts[1::2]
    if any(_MARK in part for part in islice(parts, 0, None, 2)):
        raise ValueError("a control character outside of a text")
    skeleton = _with_bare_keys_quoted(_MARK.join(parts[0::2]))
    pieces = _FLAT_OBJECT_AS_KEY.split(skeleton)
    if len(pieces) > 2 * max_object_keys + 1:
        raise ValueError(f"more than {max_object_keys} objects as keys")
    if len(pieces) > 1:
        pieces, strings = _with_object_keys_quoted(pieces, strings)
    return _filled("".join(pieces), strings)


def _with_bare_keys_quoted(skeleton: str) -> str:
    """Quote each bare number or word before a colon."""
    parts = _BARE_KEY.split(skeleton)
    parts[2::3] = [f'"{key}"' for key in parts[2::3]]
    return "".join(parts)


def _with_object_keys_quoted(pieces: list[str], strings: list[str]) -> tuple[list[str], list[str]]:
    """Replace each object that is a key, the odd ones of `pieces`, by a mark.

    Returns the pieces, and the texts of their marks. Raises ValueError for an unreadable object.
    """
    of_keys: list[str] = []
    kept: list[list[str]] = []
    at = 0
    for number, piece in enumerate(pieces):
        end = at + piece.count(_MARK)
        if number % 2:
            of_keys += strings[at:end]
        else:
            kept.append(strings[at:end])
        at = end
    objects = _STANDARD.decode("[" + _filled(",".join(pieces[1::2]), of_keys) + "]")
    # No JSON text contains a line feed: as a separator of members it shows where objects end.
    lines = json.dumps(objects, separators=("\n", ":"), sort_keys=True)[2:-2]
    escaped = lines.replace("\\", "\\\\").replace('"', '\\"').split("}\n{")
    keys = [['"{' + key.replace("\n", ",") + '}"'] for key in escaped]
    pieces[1::2] = [_MARK] * len(keys)
    kept_and_keys = chain.from_iterable(zip_longest(kept, keys, fillvalue=[]))
    return pieces, list(chain.from_iterable(kept_and_keys))


def _filled(skeleton: str, strings: list[str]) -> str:
    rest: Iterator[tuple[str, str]] = zip_longest(skeleton.split(_MARK), strings, fillvalue="")
    return "".join(chain.from_iterable(rest))


def _printable(value: JsonValue) -> JsonValue:
    """Replace lone surrogates in the texts, so that they can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    standard: JsonValue = _STANDARD.decode(clean)
    return standard
