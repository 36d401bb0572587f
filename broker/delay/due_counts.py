"""How many of the messages that each user has delayed still wait, as far as one member knows."""

from dataclasses import dataclass, field
from typing import Final

_MINUTE_MS: Final = 60_000


@dataclass(slots=True)
class _Waiting:
    """The messages of one user.

    Attributes:
        count: of all that are due in this minute or later.
        minute: the last one in which it was looked for messages that are due.
        by_minute: their numbers, by the minute in which they are due.
    """

    count: int = 0
    minute: int = 0
    by_minute: dict[int, int] = field(default_factory=dict)


class DueCounts:
    """Counts messages until they are due, also if they are recalled before."""

    def __init__(self) -> None:
        self._users: dict[str, _Waiting] = {}

    def add(self, user: str, due_ms: int, now_ms: int) -> None:
        of = self._present(user, now_ms)
        minute = due_ms // _MINUTE_MS
        of.by_minute[minute] = of.by_minute.get(minute, 0) + 1
        of.count += 1

    def count(self, user: str, now_ms: int) -> int:
        return self._present(user, now_ms).count

    def _present(self, user: str, now_ms: int) -> _Waiting:
        of = self._users.get(user)
        if of is None:
            of = self._users[user] = _Waiting()
        now = now_ms // _MINUTE_MS
        if of.minute != now:
            of.minute = now
            for minute in [minute for minute in of.by_minute if minute < now]:
                of.count -= of.by_minute.pop(minute)
        return of
