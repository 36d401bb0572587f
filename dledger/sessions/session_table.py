"""The replicated table of client sessions: the applied sequences of each session, and results.

The rule of Raft's thesis, section 6.3: the state machine remembers the applied requests of each
client and their results, so that a request that arrives twice is applied once. The table is the
same on every member, because only log entries change it: no clock, no random numbers.

* Sequences of a session are applied in order and without gaps: sequence n + 1 only after n. So a
  sequence up to the last one was certainly applied, and a later one certainly was not.
* Results are kept for repeated requests until the client says that it has the answer, but only the
  newest within the limits `results` and `result_bytes`.
* The time comes from entries, and never goes back. Only entries end sessions: a close, an expire,
  or an open that finds the table full and pushes out the least recently used one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

# A kept result counts this much more than its bytes: about Python's overhead for it.
RESULT_OVERHEAD_BYTES = 64


class SessionLimits(NamedTuple):
    """The limits of a table. The leader writes its own into each `open`, so all members agree."""

    sessions: int = 4_096
    results: int = 256  # of one session
    result_bytes: int = 32 * 1024  # of one session: 128 MiB for a full table


class Verdict(Enum):
    FRESH = "apply it, then keep its result"
    REPEATED = "it was applied: give the kept result"
    GAP = "an earlier sequence is missing: refuse it"
    UNKNOWN = "there is no such session: refuse it"


class Kept(NamedTuple):
    """One applied sequence: its entry and its result, None if that cannot be kept."""

    sequence: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    result: bytes | None

    @property
    def counted_bytes(self) -> int:
        """The bytes that count against the session's limit."""
        return RESULT_OVERHEAD_BYTES + len(self.result or b"")


class FrozenSession(NamedTuple):
    session: int
    ttl_ms: int
    used_ms: int
    last: int
    answered: int
    results: int
    result_bytes: int
    kept: tuple[Kept, ...]


class _Session:
    __slots__ = ("answered", "kept", "kept_bytes", "last", "limits", "ttl_ms", "used_ms")

    def __init__(self, ttl_ms: int, used_ms: int, limits: SessionLimits) -> None:
        self.ttl_ms = ttl_ms
        self.used_ms = used_ms
        self.limits = limits
        self.last = 0  # the highest sequence that was applied
        self.answered = 1  # the client has the answers of all sequences below
        self.kept: deque[Kept] = deque()  # in order, without gaps
        self.kept_bytes = 0

    def drop_first(self) -> None:
        self.kept_bytes -= self.kept.popleft().counted_bytes

    def drop_answered(self, answered: int) -> None:
        # Do not trust the client: a sequence that was not applied was not answered either.
        self.answered = max(self.answered, min(answered, self.last + 1))
        while self.kept and self.kept[0].sequence < self.answered:
            self.drop_first()


class SessionTable:
    """All sessions, the least recently used first."""

    __slots__ = ("_sessions", "time_ms")

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self.time_ms = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: int) -> bool:
        return session in self._sessions

    # --- appends --------------------------------------------------------------------------------

    def admit(self, session: int, sequence: int, answered: int, time_ms: int) -> Verdict:
        """Judge an append. After FRESH it counts as applied, and `keep` must follow."""
        found = self._used(session, time_ms)
        if found is None:
            return Verdict.UNKNOWN
        if sequence > found.last + 1:
            return Verdict.GAP
        found.drop_answered(answered)
        if sequence <= found.last:
            return Verdict.REPEATED
        found.last = sequence
        return Verdict.FRESH

    def keep(self, session: int, sequence: int, index: int, result: bytes | None) -> None:
        """Keep the result of an admitted append; the session may have ended meanwhile."""
        found = self._sessions.get(session)
        # A later entry of the same run may say that the result is answered. Skip it then: the table
        # must not depend on how the log is cut into runs.
        if found is None or sequence < found.answered:
            return
        kept = Kept(sequence, index, result)
        found.kept.append(kept)
        found.kept_bytes += kept.counted_bytes
        limits = found.limits
        while len(found.kept) > limits.results or found.kept_bytes > limits.result_bytes:
            found.drop_first()

    def kept(self, session: int, sequence: int) -> Kept | None:
        """Return the kept result of an applied sequence; None if it is no longer kept."""
        found = self._sessions.get(session)
        if found is None or not found.kept:
            return None
        at = sequence - found.kept[0].sequence
        return found.kept[at] if 0 <= at < len(found.kept) else None

    def expected(self, session: int) -> int:
        """Return the sequence that a session expects next. Raises KeyError."""
        return self._sessions[session].last + 1

    # --- sessions -------------------------------------------------------------------------------

    def open(self, session: int, ttl_ms: int, limits: SessionLimits, time_ms: int) -> None:
        """Begin a session. A full table drops the least recently used ones."""
        self._advance(time_ms)
        while len(self._sessions) >= limits.sessions:
            self._sessions.popitem(last=False)
        self._sessions[session] = _Session(ttl_ms, self.time_ms, limits)

    def keep_alive(self, session: int, time_ms: int) -> bool:
        """Note that a session is used; return whether it exists."""
        return self._used(session, time_ms) is not None

    def close(self, session: int, time_ms: int) -> bool:
        """End a session; return whether it existed."""
        self._advance(time_ms)
        return self._sessions.pop(session, None) is not None

    def expire(self, time_ms: int) -> int:
        """End every session that was not used for its ttl; return how many ended."""
        self._advance(time_ms)
        ended = [
            session
            for session, found in self._sessions.items()
            if found.used_ms + found.ttl_ms <= self.time_ms
        ]
        for session in ended:
            del self._sessions[session]
        return len(ended)

    def next_expiry_ms(self) -> int | None:
        return min((each.used_ms + each.ttl_ms for each in self._sessions.values()), default=None)

    def _advance(self, time_ms: int) -> None:
        self.time_ms = max(self.time_ms, time_ms)

    def _used(self, session: int, time_ms: int) -> _Session | None:
        self._advance(time_ms)
        found = self._sessions.get(session)
        if found is not None:
            found.used_ms = self.time_ms
            self._sessions.move_to_end(session)
        return found

    # --- snapshots ------------------------------------------------------------------------------

    def frozen(self) -> list[FrozenSession]:
        return [
            FrozenSession(
                session,
                each.ttl_ms,
                each.used_ms,
                each.last,
                each.answered,
                each.limits.results,
                each.limits.result_bytes,
                tuple(each.kept),
            )
            for session, each in self._sessions.items()
        ]

    @classmethod
    def thawed(cls, time_ms: int, sessions: Iterable[FrozenSession]) -> SessionTable:
        table = cls()
        table.time_ms = time_ms
        for frozen in sessions:
            limits = SessionLimits(results=frozen.results, result_bytes=frozen.result_bytes)
            made = _Session(frozen.ttl_ms, frozen.used_ms, limits)
            made.last, made.answered = frozen.last, frozen.answered
            made.kept.extend(frozen.kept)
            made.kept_bytes = sum(kept.counted_bytes for kept in frozen.kept)
            table._sessions[frozen.session] = made
        return table

    def __iter__(self) -> Iterator[int]:
        return iter(self._sessions)
