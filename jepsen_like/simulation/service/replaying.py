"""A process that applies logs to a service's machine, with other hashes and at another time.

It reads requests from its standard input and answers each on its standard output; see OtherProcess.
Before it loads the user's module it puts its clocks ahead, so that a machine that reads a clock
gets another state than in the simulation.
"""

from __future__ import annotations

import datetime as dates
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import msgpack

from dledger.entry import Entry
from jepsen_like.fingerprint import digest, shortened, told
from jepsen_like.simulation.service.other_process import LENGTH_BYTES
from jepsen_like.simulation.service.service import Service
from jepsen_like.users_code import raised_in

# How far the clocks of this process are ahead: another day, another second.
AHEAD_S = 400 * 86_400 + 12_345
# Calls of clocks that are reported, at most.
MOST_CLOCK_CALLS = 5


class _Clocks:
    """Clocks that are ahead, and the lines of code that read them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, name: str) -> None:
        frame = sys._getframe(2)
        line = f"{name} at {frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        if line not in self.lines and len(self.lines) < MOST_CLOCK_CALLS:
            self.lines.append(line)

    def put_ahead(self) -> None:
        """Replace the clocks of this process, before the user's module is loaded."""
        for name in ("time", "monotonic", "perf_counter"):
            setattr(time, name, self._ahead(name, getattr(time, name), AHEAD_S))
            ns = f"{name}_ns"
            setattr(time, ns, self._ahead(ns, getattr(time, ns), AHEAD_S * 1_000_000_000))
        self._put_dates_ahead()

    def _ahead(self, name: str, clock: Callable[[], Any], by: int) -> Callable[[], Any]:
        def read() -> Any:
            self.note(f"time.{name}()")
            return clock() + by

        return read

    def _put_dates_ahead(self) -> None:
        clocks, ahead = self, timedelta(seconds=AHEAD_S)

        class Kind(type):
            def __instancecheck__(cls, one: object) -> bool:
                return isinstance(one, datetime if cls is Moment else date)

        class Date(date, metaclass=Kind):
            @classmethod
            def today(cls) -> Any:
                clocks.note("date.today()")
                return date.today() + ahead

        class Moment(datetime, metaclass=Kind):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                clocks.note("datetime.now()")
                return datetime.now(tz) + ahead

            @classmethod
            def today(cls) -> Any:
                clocks.note("datetime.today()")
                return datetime.today() + ahead

            @classmethod
            def utcnow(cls) -> Any:
                clocks.note("datetime.utcnow()")
                return datetime.now(UTC).replace(tzinfo=None) + ahead

        dates.date, dates.datetime = Date, Moment  # type: ignore[misc]


def replay(service: Service, rows: Sequence[Any], clocks: _Clocks) -> dict[str, object]:
    """Apply entries one by one; return where the first differs. Rows: an entry and two digests."""
    machine = service.new_machine()
    for at, (fields, result_sum, state_sum) in enumerate(rows):
        clocks.lines.clear()
        (result,) = machine.apply([Entry(*fields)])
        looked = list(clocks.lines)
        if digest(result) != result_sum:
            return {"at": at, "what": "result", "told": shortened(told(result)), "clocks": looked}
        state = service.state_of(machine)
        if digest(state) != state_sum:
            return {"at": at, "what": "state", "told": told(state), "clocks": looked}
    return {}


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the user's code prints must not get among the answers
    requests = sys.stdin.buffer
    clocks = _Clocks()
    clocks.put_ahead()
    service: Service | None = None
    while len(length := requests.read(LENGTH_BYTES)) == LENGTH_BYTES:
        request = requests.read(int.from_bytes(length, "big"))
        answer: dict[str, object]
        try:
            if service is None:  # the first request is from the process that started this one
                machine, state = pickle.loads(request)
                service, answer = Service(machine, state=state), {}
            else:
                answer = replay(service, msgpack.unpackb(request), clocks)
        except (Exception, SystemExit) as error:
            answer = {"error": raised_in(error)}
        packed: bytes = msgpack.packb(answer)
        answers.write(len(packed).to_bytes(LENGTH_BYTES, "big") + packed)
        answers.flush()
