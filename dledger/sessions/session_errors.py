"""The errors of client sessions, in the tree of `dledger.errors`."""

from __future__ import annotations

from dledger.errors import DLedgerError, Fatal, OutcomeUnknown, Rejected


class SessionsOff(Rejected):
    """The group keeps no sessions."""

    _template = (
        "this group keeps no sessions: wrap the machine of every member in dledger.WithSessions"
    )


class ReservedBody(Rejected):
    """A PositionedBody begins with the mark of session entries. Only plain bytes may."""

    mark: bytes

    def _text(self) -> str:
        return (
            f"a positioned body that begins with {self.mark.hex()} looks like a session's entry: "
            "begin it with other bytes"
        )


class SessionExpired(Rejected):
    """The session has ended: closed, not used for its ttl, or dropped for newer ones.

    Nothing of this call was appended.
    """

    session: int
    _template = "session {session} has ended: open another one and append again"


class SessionFull(Rejected):
    """Too many appends of this session would wait for an answer.

    The limit includes appends left by calls that were cancelled or timed out. Nothing of this call
    was appended.
    """

    unsettled: int
    unsettled_bytes: int
    _template = (
        "{unsettled} appends ({unsettled_bytes} bytes) of this session would wait for an answer: "
        "append fewer at once, or call settle() until it returns"
    )


class SequenceGap(Rejected):
    """An earlier sequence is missing, so this one was not applied."""

    session: int
    sequence: int
    expected: int
    _template = (
        "session {session} expects sequence {expected}, not {sequence}: append that one first"
    )


class SessionOutcomeUnknown(OutcomeUnknown):
    """The time was over, or the session ended, before the outcome of an append was known.

    `sequence` is the first such append. While the session lives, `settle()` and the next append
    find out: they send it again, and it is applied once. After its end (`ended`) no call can.

    `settled` holds the known outcomes of this call, in order: a SessionAppended for each sequence
    that was applied, or a ResultNotKept in its place.
    """

    session: int
    sequence: int
    ended: bool
    reason: str
    settled: tuple[object, ...] = ()

    def _text(self) -> str:
        remedy = (
            "the session has ended: read the state to learn what became of it"
            if self.ended
            else "settle() or the next append of this session finds out"
        )
        applied = len(self.settled)
        return (
            f"sequence {self.sequence} of session {self.session} is not answered ({self.reason}); "
            f"{remedy}" + (f"; {applied} before it were applied: see `settled`" if applied else "")
        )


class ResultNotKept(DLedgerError):
    """The sequence was applied exactly once, but its result was not kept.

    `index` is the entry, if that is still known. The result was dropped for newer ones, was larger
    than a session keeps, or is not made of plain values. For a call with several bodies, `settled`
    holds the outcome of each, in order.
    """

    session: int
    sequence: int
    index: int | None
    settled: tuple[object, ...] = ()
    _template = (
        "sequence {sequence} of session {session} was applied, its result was not kept: "
        "read the state; a result must be small, and plain values"
    )


class SessionFormatTooNew(Fatal):
    """The log holds session entries of a later version of this library."""

    version: int
    known: int
    _template = (
        "a session entry of version {version}; this member knows version {known}: install the "
        "version of the other members"
    )


class SessionTableInvalid(Fatal):
    """The bytes of a snapshot are not a session table."""

    problem: str
    _template = "the snapshot's session table cannot be read: {problem}"
