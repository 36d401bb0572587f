"""A client's session: each append is applied once, however often it is sent.

Every append of a session has a sequence. An append without an answer is sent again with the same
sequence, to the present leader, before any newer one: the group applies it once and returns the
first result (`dledger.sessions.session_table`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import NamedTuple, Protocol

import trio

from dledger.body_check import checked_lengths
from dledger.entry import MAX_BODY_BYTES, Entry
from dledger.errors import (
    ConfigInvalid,
    Discarded,
    InvariantBroken,
    NodeClosing,
    OtherLoop,
    OutcomeUnknown,
    Rejected,
)
from dledger.home_loop import HomeLoop
from dledger.number_check import check_number
from dledger.patient_limit import patient_limit
from dledger.pauses import Pauses
from dledger.sessions.session_entry import (
    MAX_TTL_MS,
    AppendInSession,
    CloseSession,
    KeepSessionAlive,
    OpenSession,
    SessionCommand,
)
from dledger.sessions.session_errors import (
    ResultNotKept,
    SequenceGap,
    SessionExpired,
    SessionFull,
    SessionOutcomeUnknown,
    SessionsOff,
)
from dledger.sessions.with_sessions import AnswerKind, SessionAnswer, unpack_result
from dledger.short_repr import short_repr
from dledger.unwrapping_nursery import unwrapping_nursery

# An unused session ends after this long. A leader is elected again in a second or two.
DEFAULT_TTL_S = 60.0
# An append gives up after this time: many elections.
DEFAULT_TIMEOUT_S = 30.0
# A session is used at least this often in its ttl: two keep-alives may be lost.
KEEP_ALIVES_IN_A_TTL = 3
# The close of a session is sent once, within this time; its ttl would end it anyway.
CLOSE_TIMEOUT_S = 1.0

# The longest pause between two attempts.
LONGEST_PAUSE_S = 0.5

# Bodies in one submission: half of the results that a session keeps, and the bytes of one frame.
MOST_BODIES_AT_ONCE = 128
MOST_BYTES_AT_ONCE = MAX_BODY_BYTES
# Limit on unanswered appends of one session, from the present call and from calls that were
# cancelled or timed out.
MOST_UNSETTLED = 1_024
MOST_UNSETTLED_BYTES = 16 * 1024 * 1024

# Errors of a command that was not, or perhaps not, carried out.
_FAILURES = (Rejected, Discarded, OutcomeUnknown)
# After these errors, and after those with `retry_useless`, no attempt of the session can succeed.
_USELESS = (SessionsOff, SessionFull, NodeClosing)


class SessionAppended(NamedTuple):
    """An append that was applied once."""

    sequence: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    result: object  # the state machine's, when it was applied; tuples have become lists
    repeated: bool  # whether an earlier attempt had been applied

    def __repr__(self) -> str:
        return short_repr(self)


Settled = SessionAppended | ResultNotKept


class SessionWay(Protocol):
    async def reach(self) -> None:
        """Find the leader, but send nothing. Raises Rejected."""
        ...

    async def carry_out(self, command: SessionCommand) -> list[SessionAnswer]:
        """Try once. Raises Rejected or Discarded (it did not happen) or OutcomeUnknown."""
        ...

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        """Return some committed entries from `first` on; see Session.entries_from."""
        ...


class Session:
    """A session of exactly-once appends, which many tasks may use in turn.

    Made by `Node.session`, `RemoteLog.session` and `GroupClient.session`.
    """

    def __init__(self, way: SessionWay, session: int) -> None:
        self.id = session
        self._way = way
        self._home = HomeLoop(lambda: OtherLoop(f"session {session}"))
        self._turn = trio.Lock()
        self._next = 1
        self._unsettled: deque[tuple[int, bytes]] = deque()
        self._unsettled_bytes = 0
        self._in_log = 0  # the number of unsettled appends, the oldest, that may be in the log
        self._ended = False
        self._problem = "no attempt was made"

    # --- appending ------------------------------------------------------------------------------

    async def append(self, body: bytes, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> SessionAppended:
        """Append one body, exactly once; returns when it is applied.

        Raises:
            Rejected: it was not appended and never will be (SessionExpired, SessionFull,
                EntryTooLarge, or the reason why the group did not take it within the time).
            SessionOutcomeUnknown: the time was over first. `settle` or the next append find out.
                Its `settled` holds the outcomes known so far.
            ResultNotKept: it was applied, but its result was not kept.
        """
        return (await self.append_many((body,), timeout_s=timeout_s))[0]

    async def append_many(
        self, bodies: Sequence[bytes], *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[SessionAppended]:
        """Append bodies in this order, each exactly once. Raises as `append`.

        Cancelling gives up the wait: the next call settles appends that may be in the log already.
        """
        self._home.check()
        first: int | None = None
        settled: list[Settled] = []
        with patient_limit(timeout_s):
            async with self._turn:
                first = self._add(bodies)
                try:
                    await self._settle(settled)
                except Rejected as error:
                    self._drop_unsent(first)
                    if self._next == first:
                        raise  # the whole call was rejected
                    raise self._unknown(first, str(error), settled) from error
                finally:
                    self._drop_unsent(first)
                return _all_applied([each for each in settled if each.sequence >= first])
        if first is not None and self._next > first:
            raise self._unknown(first, self._problem, settled)
        raise NotAppendedInTime(timeout_s, self._problem)

    async def settle(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[SessionAppended]:
        """Settle the appends whose outcome is unknown: each is applied once and returned.

        Raises as `append`.
        """
        self._home.check()
        settled: list[Settled] = []
        with patient_limit(timeout_s):
            async with self._turn:
                try:
                    await self._settle(settled)
                except Rejected as error:
                    raise self._unknown(0, str(error), settled) from error
                return _all_applied(settled)
        raise self._unknown(0, self._problem, settled)

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        """Return some committed entries from `first` on, as the log holds them; appends nothing.

        Waits up to `wait_s` for the entry at `first`; empty if it does not come. Raises Rejected
        (OutsideLog: the log begins after `first`) or OutcomeUnknown, after which a retry is safe.
        """
        self._home.check()
        return await self._way.entries_from(first, wait_s)

    @property
    def unsettled(self) -> int:
        """The number of appends with an unknown outcome."""
        return len(self._unsettled)

    def _add(self, bodies: Sequence[bytes]) -> int:
        """Number new bodies; return the sequence of the first. Raises BodyInvalid."""
        if self._ended:
            raise SessionExpired(self.id)
        total = self._unsettled_bytes + sum(checked_lengths(bodies, positioned=False))
        count = len(self._unsettled) + len(bodies)
        if count > MOST_UNSETTLED or total > MOST_UNSETTLED_BYTES:
            raise SessionFull(count, total)
        first = self._next
        self._unsettled.extend(enumerate(bodies, first))
        self._unsettled_bytes = total
        self._next += len(bodies)
        return first

    def _drop_unsent(self, first: int) -> None:
        """Forget the bodies from `first` on if none of them can be in the log."""
        while (
            self._in_log < len(self._unsettled)
            and self._unsettled[self._in_log][0] == first
            and self._next > first
        ):
            self._unsettled_bytes -= len(self._unsettled.pop()[1])
            self._next -= 1

    def _unknown(
        self, first: int, reason: str, settled: Sequence[Settled]
    ) -> SessionOutcomeUnknown:
        """Make the error of a call whose bodies begin at `first`, with the known outcomes."""
        oldest = self._unsettled[0][0] if self._unsettled else self._next
        own = tuple(each for each in settled if each.sequence >= first)
        return SessionOutcomeUnknown(
            self.id, max(first, oldest), ended=self._ended, reason=reason, settled=own
        )

    # --- sending --------------------------------------------------------------------------------

    async def _settle(self, settled: list[Settled]) -> None:
        """Send all unanswered appends, oldest first; add their outcomes to `settled`."""
        pauses = Pauses(LONGEST_PAUSE_S, spread=0)
        while self._unsettled:
            if self._ended:
                raise SessionExpired(self.id)
            batch, before = self._batch(), self._in_log
            try:
                await self._way.reach()
                self._in_log = max(before, len(batch))
                answers = await self._way.carry_out(
                    AppendInSession(self.id, batch[0][0], batch[0][0], [body for _, body in batch])
                )
            except _FAILURES as error:
                if not isinstance(error, OutcomeUnknown):
                    self._in_log = before  # this attempt certainly failed
                if error.retry_useless or isinstance(error, _USELESS):
                    raise
                self._problem = str(error)
                await pauses.pause()
                continue
            pauses.restart()
            if len(answers) != len(batch):
                raise InvariantBroken(f"{len(answers)} answers to {len(batch)} appends")
            if answers[0].kind is AnswerKind.UNKNOWN:
                self._in_log, self._ended = before, True
                raise SessionExpired(self.id)
            settled += self._take(batch, answers)
        if not settled:
            await trio.lowlevel.checkpoint()  # never after an answer: a deadline would lose it

    def _batch(self) -> list[tuple[int, bytes]]:
        batch: list[tuple[int, bytes]] = []
        total = 0
        for each in islice(self._unsettled, MOST_BODIES_AT_ONCE):
            total += len(each[1])
            if batch and total > MOST_BYTES_AT_ONCE:
                break
            batch.append(each)
        return batch

    def _take(
        self, batch: Sequence[tuple[int, bytes]], answers: Sequence[SessionAnswer]
    ) -> list[Settled]:
        settled: list[Settled] = []
        for (sequence, body), (kind, number, packed) in zip(batch, answers, strict=True):
            match kind:
                case AnswerKind.APPLIED | AnswerKind.REPEATED if packed is not None:
                    repeated = kind is AnswerKind.REPEATED
                    settled.append(self._appended(sequence, number, packed, repeated))
                case AnswerKind.APPLIED | AnswerKind.REPEATED:
                    settled.append(ResultNotKept(self.id, sequence, number))
                case AnswerKind.FORGOTTEN:
                    settled.append(ResultNotKept(self.id, sequence, None))
                case AnswerKind.GAP:
                    raise SequenceGap(self.id, sequence, number)
                case _:
                    raise InvariantBroken(f"an append in a session was answered with {kind!r}")
            self._unsettled.popleft()
            self._unsettled_bytes -= len(body)
            self._in_log = max(0, self._in_log - 1)
        return settled

    def _appended(self, sequence: int, index: int, packed: bytes, repeated: bool) -> Settled:
        try:
            return SessionAppended(sequence, index, unpack_result(packed), repeated)
        except (ValueError, TypeError):
            return ResultNotKept(self.id, sequence, index)  # its result is not msgpack

    # --- keeping alive, closing -----------------------------------------------------------------

    async def keep_alive(self, every_s: float) -> None:
        """Use the session every `every_s` seconds, until it has ended."""
        while not self._ended:
            await trio.sleep(every_s)
            try:
                (answer,) = await self._way.carry_out(KeepSessionAlive(self.id))
            except _FAILURES as error:
                self._problem = str(error)
                continue
            self._ended = answer.kind is AnswerKind.UNKNOWN

    async def close(self) -> None:
        """Try once to close the session. Unsettled appends stay unsettled."""
        self._home.end()
        if self._ended:
            return
        self._ended = True
        with trio.move_on_after(CLOSE_TIMEOUT_S):
            try:
                await self._way.carry_out(CloseSession(self.id))
            except _FAILURES as error:
                self._problem = str(error)


class NotAppendedInTime(Rejected):
    """The group did not accept the append in time; it was not appended."""

    timeout_s: float
    reason: str
    _template = "not appended within {timeout_s:g} s: {reason}"


@asynccontextmanager
async def open_session(
    way: SessionWay, ttl_s: float = DEFAULT_TTL_S, timeout_s: float = DEFAULT_TIMEOUT_S
) -> AsyncIterator[Session]:
    """Begin a session, keep it alive, and end it with the block.

    Raises NotAppendedInTime, SessionsOff, ConfigInvalid.
    """
    check_number("ttl_s", ttl_s)
    if ttl_s <= 0:
        raise ConfigInvalid("ttl_s", "must be above 0")
    ttl_s = min(ttl_s, MAX_TTL_MS / 1000)  # a leader grants no more
    session = Session(way, await _open(way, math.ceil(ttl_s * 1000), timeout_s))
    try:
        async with unwrapping_nursery() as nursery:
            nursery.start_soon(session.keep_alive, ttl_s / KEEP_ALIVES_IN_A_TTL)
            yield session
            nursery.cancel_scope.cancel()
    finally:
        await session.close()


async def _open(way: SessionWay, ttl_ms: int, timeout_s: float) -> int:
    problem, pauses = "no attempt was made", Pauses(LONGEST_PAUSE_S, spread=0)
    with patient_limit(timeout_s):
        while True:
            try:
                # If the answer is lost, the opened session has no owner, and ends by its ttl.
                (answer,) = await way.carry_out(OpenSession(ttl_ms))
            except _FAILURES as error:
                if error.retry_useless or isinstance(error, _USELESS):
                    raise
                problem = str(error)
            else:
                return answer.number
            await pauses.pause()
    raise NotAppendedInTime(timeout_s, problem)


def _all_applied(settled: Sequence[SessionAppended | ResultNotKept]) -> list[SessionAppended]:
    applied: list[SessionAppended] = []
    for each in settled:
        if isinstance(each, ResultNotKept):
            each.settled = tuple(settled)
            raise each
        applied.append(each)
    return applied
