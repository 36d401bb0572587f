"""Adds client sessions to a state machine: it applies each append of a session once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

import msgpack

from dledger.entry import Entry
from dledger.errors import ConfigInvalid
from dledger.machine_check import applied, check_machine
from dledger.machine_kind import machine_kind
from dledger.number_check import check_number
from dledger.sessions.session_entry import (
    MAX_LIMITS,
    AppendEntry,
    CloseEntry,
    ExpireEntry,
    KeepAliveEntry,
    OpenEntry,
    PlainEntry,
    SessionEntry,
    decode,
    is_envelope,
)
from dledger.sessions.session_snapshot import decode_table, encode_table
from dledger.sessions.session_table import SessionLimits, SessionTable, Verdict
from dledger.state_machine import (
    RetainingMachine,
    SnapshottingMachine,
    StateMachine,
    snapshot_format,
)

# A larger result is not kept. Part of the format: it must be the same on every member.
MAX_RESULT_BYTES = 16 * 1024
# The format name of a snapshot of a table and a machine begins with this.
SNAPSHOT_FORMAT = "sessions/1"


class AnswerKind(IntEnum):
    """The outcome of an entry of a session."""

    OPENED = 0  # number: the session's id
    APPLIED = 1  # number: the entry that was applied
    REPEATED = 2  # applied before; number: that entry
    FORGOTTEN = 3  # applied before, and neither entry nor result is kept
    GAP = 4  # not applied; number: the sequence that the session expects
    UNKNOWN = 5  # not applied: there is no such session
    USED = 6
    CLOSED = 7
    EXPIRED = 8  # number: how many sessions ended
    MALFORMED = 9  # not applied: no leader of this library writes such an entry


class SessionAnswer(NamedTuple):
    """The result of an entry of a session, the same on every member."""

    kind: AnswerKind
    number: int = 0
    result: bytes | None = None  # msgpack; None: none is kept


def pack_result(result: object) -> bytes | None:
    """Encode a machine's result to keep it; None if it is too large or not plain values."""
    try:
        packed: bytes = msgpack.packb(result)
    except (TypeError, ValueError, OverflowError):
        return None
    return packed if len(packed) <= MAX_RESULT_BYTES else None


def unpack_result(packed: bytes) -> object:
    """Decode what `pack_result` packed; tuples have become lists."""
    return msgpack.unpackb(packed, strict_map_key=False)


class WithSessions:
    """A state machine with a session table beside it. Wrap the machine of every member.

    The machine gets only the application's bodies: entries of sessions without their header, each
    sequence once, and all others as they are. An entry's `body_pos` stays the place of the body in
    the log. Results of appends in a session must be plain values (None, numbers, text, bytes,
    lists, dicts).

    A machine with `snapshot` and `restore` gets a wrapper that has them too, and one that also has
    `log_kept_from` gets that. Without snapshots the sessions need the whole log.
    """

    def __new__(cls, machine: StateMachine, limits: SessionLimits | None = None) -> WithSessions:
        if cls is WithSessions and isinstance(machine, SnapshottingMachine):
            retains = isinstance(machine, RetainingMachine)
            return super().__new__(_WithRetention if retains else _WithSnapshots)
        return super().__new__(cls)

    def __init__(self, machine: StateMachine, limits: SessionLimits | None = None) -> None:
        """Raises MachineUnusable, ConfigInvalid."""
        check_machine(machine)
        self.machine = machine
        self.limits = limits or SessionLimits()
        for name, limit, most in zip(SessionLimits._fields, self.limits, MAX_LIMITS, strict=True):
            check_number(f"limits.{name}", limit, whole=True)
            if not 1 <= limit <= most:
                raise ConfigInvalid(f"limits.{name}", f"must be from 1 to {most}")
        self.table = SessionTable()

    @property
    def machine_name(self) -> str:
        """The `machine_name` of the wrapped machine."""
        return machine_kind(self.machine).name

    @property
    def machine_version(self) -> int:
        """The `machine_version` of the wrapped machine."""
        return machine_kind(self.machine).version

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply entries; the result of a session's entry is a SessionAnswer.

        Raises SessionFormatTooNew.
        """
        if not any(is_envelope(entry.body) for entry in entries):
            return self.machine.apply(entries)
        run = _Run(self.table, self.machine.apply, len(entries))
        for at, entry in enumerate(entries):
            if is_envelope(entry.body):
                self._apply_one(run, at, entry, decode(entry.body))
            else:
                run.add(at, entry)
        return run.finish()

    def _apply_one(self, run: _Run, at: int, entry: Entry, content: SessionEntry | None) -> None:
        table, answers = self.table, run.answers
        match content:
            case AppendEntry():
                self._append(run, at, entry, content)
            case PlainEntry(body, header_bytes):
                run.add(at, _inner(entry, body, header_bytes))
            case OpenEntry(time_ms, ttl_ms, limits):
                table.open(entry.index, ttl_ms, limits, time_ms)
                answers[at] = SessionAnswer(AnswerKind.OPENED, entry.index)
            case KeepAliveEntry(time_ms, session):
                used = table.keep_alive(session, time_ms)
                answers[at] = SessionAnswer(AnswerKind.USED if used else AnswerKind.UNKNOWN)
            case CloseEntry(time_ms, session):
                closed = table.close(session, time_ms)
                answers[at] = SessionAnswer(AnswerKind.CLOSED if closed else AnswerKind.UNKNOWN)
            case ExpireEntry(time_ms):
                answers[at] = SessionAnswer(AnswerKind.EXPIRED, table.expire(time_ms))
            case None:
                answers[at] = SessionAnswer(AnswerKind.MALFORMED)

    def _append(self, run: _Run, at: int, entry: Entry, content: AppendEntry) -> None:
        session, sequence = content.session, content.sequence
        verdict = self.table.admit(session, sequence, content.answered, content.time_ms)
        match verdict:
            case Verdict.FRESH:
                inner = _inner(entry, content.body, content.header_bytes)
                run.add(at, inner, (session, sequence))
            case Verdict.REPEATED:
                run.flush()  # the first attempt may be in this run
                kept = self.table.kept(session, sequence)
                run.answers[at] = (
                    SessionAnswer(AnswerKind.FORGOTTEN)
                    if kept is None
                    else SessionAnswer(AnswerKind.REPEATED, kept.index, kept.result)
                )
            case Verdict.GAP:
                run.answers[at] = SessionAnswer(AnswerKind.GAP, self.table.expected(session))
            case Verdict.UNKNOWN:
                run.answers[at] = SessionAnswer(AnswerKind.UNKNOWN)


def application_of(machine: StateMachine) -> StateMachine:
    return machine.machine if isinstance(machine, WithSessions) else machine


class _WithSnapshots(WithSessions):
    machine: StateMachine

    @property
    def snapshot_format(self) -> str:
        assert isinstance(self.machine, SnapshottingMachine)
        return f"{SNAPSHOT_FORMAT}+{snapshot_format(self.machine)}"

    def snapshot(self) -> Iterator[bytes]:
        """Yield the table and the machine as they are now, without later entries."""
        assert isinstance(self.machine, SnapshottingMachine)
        table, inner = encode_table(self.table), self.machine.snapshot()
        return chain(table, inner)

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Restore the state of a snapshot. Raises SessionTableInvalid."""
        assert isinstance(self.machine, SnapshottingMachine)
        table, rest = decode_table(chunks)
        self.machine.restore(rest)
        self.table = table


class _WithRetention(_WithSnapshots):
    def log_kept_from(self) -> int:
        assert isinstance(self.machine, RetainingMachine)
        return self.machine.log_kept_from()


class _Run:
    """Collects entries and gives them to the machine in runs as long as possible."""

    __slots__ = ("_apply", "_entries", "_places", "_table", "answers")

    def __init__(
        self,
        table: SessionTable,
        apply: Callable[[Sequence[Entry]], Sequence[object]],
        count: int,
    ) -> None:
        self.answers: list[object] = [None] * count
        self._table = table
        self._apply = apply
        self._entries: list[Entry] = []
        self._places: list[tuple[int, tuple[int, int] | None]] = []

    def add(self, at: int, entry: Entry, sequence: tuple[int, int] | None = None) -> None:
        self._entries.append(entry)
        self._places.append((at, sequence))

    def flush(self) -> None:
        """Apply the added entries, and keep the results of sessions."""
        if not self._entries:
            return
        entries, places = self._entries, self._places
        self._entries, self._places = [], []
        results = applied(self._apply, entries, entries[0].index, entries[-1].index)
        for (at, sequence), entry, result in zip(places, entries, results, strict=True):
            self.answers[at] = result if sequence is None else self._keep(entry, sequence, result)

    def _keep(self, entry: Entry, sequence: tuple[int, int], result: object) -> SessionAnswer:
        packed = pack_result(result)
        self._table.keep(*sequence, entry.index, packed)
        return SessionAnswer(AnswerKind.APPLIED, entry.index, packed)

    def finish(self) -> list[object]:
        self.flush()
        return self.answers


def _inner(entry: Entry, body: bytes, header_bytes: int) -> Entry:
    """Return the entry with the application's body, and the body's position as `body_pos`."""
    return entry._replace(pos=entry.pos + header_bytes, body=body)
