"""Notes the calls of all clients in the history, and counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from jepsen_like.chaos.service import Call
from jepsen_like.history.operation import EventType
from jepsen_like.history.writer import HistoryWriter


class Recorder:
    """One history of many clients; `now_ns` counts from the begin of the run."""

    def __init__(self, writer: HistoryWriter, now_ns: Callable[[], int]) -> None:
        self._writer = writer
        self._now_ns = now_ns
        self.counts: Counter[str] = Counter()

    def note(
        self,
        process: int,
        type: EventType,
        call: Call,
        value: object,
        member: str | None,
        error: str | None = None,
    ) -> None:
        now_ns = self._now_ns()
        self._writer.event(process, now_ns, type, call.function, call.key, value, error, member)
        if type is not EventType.INVOKE:
            self.counts[type.value] += 1
