"""What can go wrong with client sessions, in the tree of `dledger.errors`."""

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
            f"a positioned body that begins with {mark.hex()} cannot be told from a session's "
            "entry: begin it otherwise"
        )


class SessionExpired(Rejected):
    """The session has ended: closed, not used for its ttl, or pushed out by newer ones.

    What this call was to append was not appended.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        super().__init__(f"session {session} has ended: open another one and append again")


class SessionFull(Rejected):
    """Too much of this session would wait for an answer: what was given now, and what earlier
    calls that were cancelled or timed out have left. Nothing of this call was appended.
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
    """The time was over, or the session ended, before it was known what became of an append.

    `sequence` is the first one concerned. While the session lives, `settle()` and the next append
    find out: they send it again, and it is applied once. After its end (`ended`) no call can.

    `settled` is what this call has learned before, in order: a SessionAppended for each sequence
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
    """The sequence was applied exactly once; its result is not there (any more).

    `index` is the entry, if that is still known. The result was dropped for newer ones, was larger
    than a session keeps, or is not made of what msgpack can hold. Of a call with several bodies,
    `settled` is what became of each, in order.
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
            f"a session entry of version {version}, this member knows {known}: "
            "install the version of the other members"
        )


class SessionTableInvalid(Fatal):
    """The bytes of a snapshot are not a session table."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the snapshot's session table cannot be read: {problem}")
