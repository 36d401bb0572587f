"""The log entries of client sessions: envelopes that a group with sessions writes.

An envelope is the body of a normal entry, so every reader of the log (Java's too) sees an opaque
body. Only a group whose machine is wrapped in `WithSessions` looks inside. Big-endian:

===== ==== ========== ===========================================================================
 off  size field      value
===== ==== ========== ===========================================================================
   0    8  mark       f5 'dlsess' f6
   8    1  version    1
   9    1  kind       0 plain, 1 open, 2 append, 3 keep alive, 4 close, 5 expire
  10       fields     see below
===== ==== ========== ===========================================================================

========== ===================================================================================
 kind      fields
========== ===================================================================================
plain      the application's body
open       time i64, ttl i64, sessions u32, results u32, result bytes u32
append     time i64, session i64, sequence i64, answered i64, the application's body
keep alive time i64, session i64
close      time i64, session i64
expire     time i64
========== ===================================================================================

Bodies that do not begin with the mark are the application's, byte for byte as it gave them. The
leader wraps a body that does in a plain envelope, so no body is taken for an envelope. Times and
ttl are milliseconds of the session clock, decided by the leader.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from dledger.entry import Body, PositionedBody, PositionedParts
from dledger.sessions.session_errors import ReservedBody, SessionFormatTooNew
from dledger.sessions.session_table import SessionLimits

# No byte of it is zero. The position in a PositionedBody begins with a zero byte, so a head shorter
# than the mark cannot form the mark together with the position after it.
MARK = b"\xf5dlsess\xf6"
VERSION = 1

_PREFIX = struct.Struct(">8sBB")
_OPEN = struct.Struct(">qqIII")
_APPEND = struct.Struct(">qqqq")
_OF_ONE = struct.Struct(">qq")
_EXPIRE = struct.Struct(">q")

# The bytes that a session adds to a body.
APPEND_BYTES = _PREFIX.size + _APPEND.size

# The limits of an `open`: they bound the table whatever an entry asks for.
MAX_TTL_MS = 24 * 3600 * 1000
MAX_LIMITS = SessionLimits(sessions=65_536, results=4_096, result_bytes=1024 * 1024)


class Kind(IntEnum):
    PLAIN = 0
    OPEN = 1
    APPEND = 2
    KEEP_ALIVE = 3
    CLOSE = 4
    EXPIRE = 5


class PlainEntry(NamedTuple):
    """A body of the application that begins with the mark."""

    body: bytes
    header_bytes: int


class OpenEntry(NamedTuple):
    """Begins a session; its id is the index of this entry."""

    time_ms: int
    ttl_ms: int
    limits: SessionLimits


class AppendEntry(NamedTuple):
    """A body of the application, to be applied once. Sequences begin with 1.

    The client has the answers of all sequences below `answered` and will not request them again.
    """

    time_ms: int
    session: int
    sequence: int
    answered: int
    body: bytes
    header_bytes: int


class KeepAliveEntry(NamedTuple):
    time_ms: int
    session: int


class CloseEntry(NamedTuple):
    time_ms: int
    session: int


class ExpireEntry(NamedTuple):
    """Ends the sessions that were not used for their ttl."""

    time_ms: int


SessionEntry = PlainEntry | OpenEntry | AppendEntry | KeepAliveEntry | CloseEntry | ExpireEntry


# --- requests of clients: the leader adds the time, and its limits ----------------------------


class OpenSession(NamedTuple):
    """Begin a session that ends when it is not used for `ttl_ms`."""

    ttl_ms: int


class AppendInSession(NamedTuple):
    """Append these bodies; the first has `sequence`, each other one more."""

    session: int
    sequence: int
    answered: int
    bodies: Sequence[bytes]


class KeepSessionAlive(NamedTuple):
    session: int


class CloseSession(NamedTuple):
    session: int


SessionCommand = OpenSession | AppendInSession | KeepSessionAlive | CloseSession


def encode_command(command: SessionCommand, time_ms: int, limits: SessionLimits) -> list[bytes]:
    match command:
        case OpenSession(ttl_ms):
            ttl_ms = min(max(ttl_ms, 1), MAX_TTL_MS)
            return [_prefix(Kind.OPEN) + _OPEN.pack(time_ms, ttl_ms, *limits)]
        case AppendInSession(session, sequence, answered, bodies):
            prefix = _prefix(Kind.APPEND)
            return [
                b"".join((prefix, _APPEND.pack(time_ms, session, sequence + at, answered), body))
                for at, body in enumerate(bodies)
            ]
        case KeepSessionAlive(session):
            return [_prefix(Kind.KEEP_ALIVE) + _OF_ONE.pack(time_ms, session)]
        case CloseSession(session):
            return [_prefix(Kind.CLOSE) + _OF_ONE.pack(time_ms, session)]


def encode_expire(time_ms: int) -> bytes:
    return _prefix(Kind.EXPIRE) + _EXPIRE.pack(time_ms)


def escaped(bodies: Sequence[Body]) -> Sequence[Body]:
    """Wrap bodies of the application that begin with the mark; return the others unchanged.

    Raises ReservedBody for a body with a position that begins with the mark: it cannot be moved.
    """
    for body in bodies:
        if _beginning(body).startswith(MARK):
            return [_escaped(each) for each in bodies]
    return bodies


def _beginning(body: Body) -> bytes:
    if isinstance(body, PositionedParts):
        return body.parts[0].head
    return body.head if isinstance(body, PositionedBody) else body


def _escaped(body: Body) -> Body:
    if not isinstance(body, bytes):
        if _beginning(body).startswith(MARK):
            raise ReservedBody(MARK)
        return body
    return _prefix(Kind.PLAIN) + body if body.startswith(MARK) else body


def is_envelope(body: bytes) -> bool:
    return body.startswith(MARK)


def decode(body: bytes) -> SessionEntry | None:
    """Decode an envelope; None for a broken one, which no leader of this library writes.

    Raises SessionFormatTooNew: another version may mean anything, so this member must not guess.
    """
    if len(body) < _PREFIX.size:
        return None
    _, version, kind = _PREFIX.unpack_from(body)
    if version != VERSION:
        raise SessionFormatTooNew(version, VERSION)
    try:
        return _decode(kind, body)
    except struct.error:
        return None


def _decode(kind: int, body: bytes) -> SessionEntry | None:
    at = _PREFIX.size
    match kind:
        case Kind.APPEND:
            time_ms, session, sequence, answered = _APPEND.unpack_from(body, at)
            if sequence < 1:
                return None
            content = body[APPEND_BYTES:]
            return AppendEntry(time_ms, session, sequence, answered, content, APPEND_BYTES)
        case Kind.PLAIN:
            return PlainEntry(body[at:], at)
        case Kind.OPEN:
            time_ms, ttl_ms, *numbers = _OPEN.unpack(body[at:])
            limits = SessionLimits(*numbers)
            return OpenEntry(time_ms, ttl_ms, limits) if _sane(ttl_ms, limits) else None
        case Kind.KEEP_ALIVE:
            return KeepAliveEntry(*_OF_ONE.unpack(body[at:]))
        case Kind.CLOSE:
            return CloseEntry(*_OF_ONE.unpack(body[at:]))
        case Kind.EXPIRE:
            return ExpireEntry(*_EXPIRE.unpack(body[at:]))
        case _:
            return None


def _sane(ttl_ms: int, limits: SessionLimits) -> bool:
    small = all(1 <= mine <= most for mine, most in zip(limits, MAX_LIMITS, strict=True))
    return small and 1 <= ttl_ms <= MAX_TTL_MS


def _prefix(kind: Kind) -> bytes:
    return _PREFIX.pack(MARK, VERSION, kind)
