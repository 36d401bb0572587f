"""Bounds the lines that clients can make a server write to its log."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)

# A client that keeps sending nonsense would fill the disk, at 100 KB a second.
LINES_A_PERIOD: Final = 20
PERIOD_S: Final = 60.0

# Hosts with counts of their own; for more hosts only the bound on all lines of a kind applies.
MAX_CLIENTS: Final = 1024

_CLIENT: Final = "client_host"  # the attribute of a log record


def about_client(host: str) -> Mapping[str, str]:
    """Return the `extra` of a warning about a client: one a minute is written for each host."""
    return {_CLIENT: host}


@dataclass(slots=True)
class _Period:
    """A minute of warnings.

    Attributes:
        began: monotonic seconds.
        lines: how many arrived.
        passed: how many of them were written.
    """

    began: float
    lines: int = 0
    passed: int = 0


class BoundedLog(logging.Filter):
    """Passes 20 warnings of one kind a minute, and one of each client.

    The next one that passes says how many were left out. Warnings of one kind have the same format.
    A warning belongs to a client if it was made with `about_client`. Errors always pass: they are
    defects, and few. Add it to the handlers of a server's program.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        # Kinds are format strings in the code, so there are few.
        self._kinds: dict[str, _Period] = {}
        self._clients: OrderedDict[tuple[str, str], _Period] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write this record; its text may be extended."""
        if record.levelno != logging.WARNING:
            return True
        now = self._clock()
        kind, client = record.msg, getattr(record, _CLIENT, None)
        left_out = 0
        if client is not None:
            period, left_out = self._count(self._clients, (kind, client), now)
            while len(self._clients) > MAX_CLIENTS:
                self._clients.popitem(last=False)
            if period.passed:
                return False
            period.passed = 1
        all_of_kind, left_out_of_kind = self._count(self._kinds, kind, now)
        if all_of_kind.passed >= LINES_A_PERIOD:
            return False
        all_of_kind.passed += 1
        left_out += left_out_of_kind
        if left_out:
            text = record.getMessage()
            record.msg, record.args = "%s (%d lines like it were left out)", (text, left_out)
        return True

    @staticmethod
    def _count(periods: MutableMapping[K, _Period], key: K, now: float) -> tuple[_Period, int]:
        """Count a line; return its period, and how many lines an ended period left out."""
        period = periods.get(key)
        left_out = 0
        if period is None or now >= period.began + PERIOD_S:
            left_out = 0 if period is None else period.lines - period.passed
            periods.pop(key, None)  # so that the new one is last in order
            period = periods[key] = _Period(now)
        period.lines += 1
        return period, left_out
