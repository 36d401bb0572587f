"""The errors of client sessions, in the tree of `dledger.errors`."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import DLedgerError, Fatal, OutcomeUnknown, Rejected


class SessionsOff(Rejected):
    """The group keeps no sessions."""

    def __init__(self) -> None:
        super().__init__(
            "this group keeps no sessions: wrap the machine of every member in dledger.WithSessions"
        )


class ReservedBody(Rejected):
    """A PositionedBody begins with the mark of session entries. Bodies of bytes may."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        super().__init__(
            f"a positioned body that begins with {mark.hex()} looks like a session's entry: "
            "begin it with other bytes"
        )


class SessionExpired(Rejected):
    """The session has ended: closed, not used for its ttl, or pushed out by newer ones.

    Nothing of this call was appended.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        super().__init__(f"session {session} has ended: open another one and append again")


class SessionFull(Rejected):
    """Too many appends of this session would wait for an answer, with those that cancelled or
    timed out calls have left. Nothing of this call was appended.
    """

    def __init__(self, unsettled: int, unsettled_bytes: int) -> None:
        self.unsettled = unsettled
        self.unsettled_bytes = unsettled_bytes
        super().__init__(
            f"{unsettled} appends ({unsettled_bytes} bytes) of this session would wait for an "
            "answer: append fewer at once, or call settle() until it returns"
        )


class SequenceGap(Rejected):
    """A sequence came before the one in front of it: it was not applied."""

    def __init__(self, session: int, sequence: int, expected: int) -> None:
        self.session = session
        self.sequence = sequence
        self.expected = expected
        super().__init__(
            f"session {session} expects sequence {expected}, not {sequence}: append that one first"
        )


class SessionOutcomeUnknown(OutcomeUnknown):
    """The time was over, or the session ended, before the outcome of an append was known.

    `sequence` is the first such append. While the session lives, `settle()` and the next append
    find out: they send it again, and it is applied once. After its end (`ended`) no call can.

    `settled` holds the known outcomes of this call, in order: a SessionAppended for each sequence
    that was applied, or a ResultNotKept in its place.
    """

    def __init__(
        self,
        session: int,
        sequence: int,
        *,
        ended: bool,
        reason: str,
        settled: Sequence[object] = (),
    ) -> None:
        self.session = session
        self.sequence = sequence
        self.ended = ended
        self.reason = reason
        self.settled = tuple(settled)
        remedy = (
            "the session has ended: read the state to learn what became of it"
            if ended
            else "settle() or the next append of this session finds out"
        )
        super().__init__(
            f"sequence {sequence} of session {session} is not answered ({reason}); {remedy}"
            + (f"; {len(settled)} before it were applied: see `settled`" if settled else "")
        )


class ResultNotKept(DLedgerError):
    """The sequence was applied exactly once, but its result was not kept.

    `index` is the entry, if that is still known. The result was dropped for newer ones, was larger
    than a session keeps, or is not made of plain values. For a call with several bodies, `settled`
    holds the outcome of each, in order.
    """

    def __init__(
        self, session: int, sequence: int, index: int | None, settled: Sequence[object] = ()
    ) -> None:
        self.settled = tuple(settled)
        self.session = session
        self.sequence = sequence
        self.index = index
        super().__init__(
            f"sequence {sequence} of session {session} was applied, its result was not kept: "
            "read the state; a result must be small, and plain values"
        )


class SessionFormatTooNew(Fatal):
    """The log holds session entries of a later version of this library."""

    def __init__(self, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(
            f"a session entry of version {version}; this member knows version {known}: "
            "install the version of the other members"
        )


class SessionTableInvalid(Fatal):
    """The bytes of a snapshot are not a session table."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the snapshot's session table cannot be read: {problem}")
