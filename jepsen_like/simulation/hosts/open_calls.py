"""Calls that have not ended: each has to end, with an answer or with an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio


class OpenCall(NamedTuple):
    what: str
    on: object  # the node it waits for; None: a whole group
    began_at: float

    def __str__(self) -> str:
        return f"{self.what}, waiting since {self.began_at:.3f} s"


class OpenCalls:
    def __init__(self) -> None:
        self._open: dict[int, OpenCall] = {}
        self._number = 0

    @contextmanager
    def waits(self, what: str, on: object = None) -> Iterator[None]:
        """Note a call that lasts as long as the block."""
        self._number += 1
        number = self._number
        self._open[number] = OpenCall(what, on, trio.current_time())
        try:
            yield
        finally:
            del self._open[number]

    def of(self, node: object) -> list[OpenCall]:
        return [call for call in self._open.values() if call.on is node]

    @property
    def all(self) -> list[OpenCall]:
        return list(self._open.values())
