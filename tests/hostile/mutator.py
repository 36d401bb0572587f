"""Damages bytes at random; a seed always gives the same damage."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from remoting.wire.frame import MAX_FRAME_BYTES

# Numbers at which lengths and counts go wrong.
_NUMBERS = (
    0,
    1,
    2,
    127,
    128,
    255,
    32767,
    32768,
    65535,
    MAX_FRAME_BYTES,
    2**31 - 1,
    2**31,
    2**32 - 1,
)

_TOKENS = (
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"{{}:1}",
    b'{"queueId":0}:1,',
    b"1:2,",
    b'"',
    b"\\",
    b'"\\ud800"',
    b"\\u0000",
    b"1e999",
    b"-1",
    b"NaN",
    b"9" * 30,
    b"9223372036854775808",
    b"9" * 5000,
    b"[" * 2000,
    b"\x00",
    b"\x01",
    b"\x02",
    b"\xff\xfe",
    b"\xc0",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\x00\x00\x00\x01",
    b"\xd6\xff\x00\x00\x00\x00",
    b"=",
    b",",
    b":",
    b"x" * 70_000,
)

_NUMBER_TEXT = re.compile(rb"-?\d+")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')

# Results are not grown beyond this, so that a run is many inputs and not a few long ones.
MAX_BYTES = 1 << 20


class Mutator:
    """Makes damaged bytes out of a corpus.

    Args:
        corpus: where damage begins.
        seed: which damage.
    """

    def __init__(self, corpus: Sequence[bytes], seed: int) -> None:
        self._corpus = corpus
        self.random = random.Random(seed)
        self._ways: tuple[Callable[[bytes], bytes], ...] = (
            self._flip,
            self._flip,
            self._put_number,
            self._put_number,
            self._insert,
            self._replace_text,
            self._replace_text,
            self._cut,
            self._repeat,
            self._splice,
            self._end_early,
        )

    def next(self) -> bytes:
        """One of the corpus with one to four damages."""
        return self.damaged(self.random.choice(self._corpus))

    def damaged(self, data: bytes) -> bytes:
        """`data` with one to four damages."""
        for _ in range(self.random.choice((1, 1, 2, 3, 4))):
            data = self.random.choice(self._ways)(data)[:MAX_BYTES]
        return data

    def _span(self, data: bytes, longest: int = 64) -> tuple[int, int]:
        """The beginning and the end of some bytes of `data`."""
        begin = self.random.randint(0, len(data))
        return begin, min(len(data), begin + self.random.randint(0, longest))

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return data
        at = self.random.randrange(len(data))
        return data[:at] + bytes((data[at] ^ 1 << self.random.randrange(8),)) + data[at + 1 :]

    def _put_number(self, data: bytes) -> bytes:
        size = self.random.choice((1, 2, 4, 4, 8))
        number = self.random.choice(_NUMBERS) + self.random.choice((0, 0, 0, -1, 1))
        at = self.random.randint(0, len(data))
        return data[:at] + (number % (1 << 8 * size)).to_bytes(size) + data[at + size :]

    def _insert(self, data: bytes) -> bytes:
        at, end = self._span(data, 8)
        return data[:at] + self.random.choice(_TOKENS) + data[self.random.choice((at, end)) :]

    def _replace_text(self, data: bytes) -> bytes:
        """Put a token in the place of a number or a text, as it may stand in JSON."""
        found = list(self.random.choice((_NUMBER_TEXT, _TEXT)).finditer(data, 0, 1 << 16))
        if not found:
            return self._insert(data)
        one = self.random.choice(found)
        return data[: one.start()] + self.random.choice(_TOKENS) + data[one.end() :]

    def _cut(self, data: bytes) -> bytes:
        at, end = self._span(data)
        return data[:at] + data[end:]

    def _repeat(self, data: bytes) -> bytes:
        at, end = self._span(data)
        times = self.random.choice((2, 3, 10, 1000))
        return data[:at] + data[at:end] * times + data[end:]

    def _splice(self, data: bytes) -> bytes:
        other = self.random.choice(self._corpus)
        return data[: self._span(data)[0]] + other[self._span(other)[0] :]

    def _end_early(self, data: bytes) -> bytes:
        return data[: self._span(data)[0]]
