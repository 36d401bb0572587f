"""Requests and answers of client sessions: part of `client_protocol`.

| operation | numbers | payload |
|---|---|---|
| session_open | ttl in ms | |
| session_append | session, sequence of the first body, answered, size of each body | the bodies |
| session_keep_alive, session_close | session | |

An answer's value holds the [kind, number, size] of a SessionAnswer for each entry; `size` is the
size of the result in the payload, -1 for none.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.errors import MessageMalformed
from dledger.sessions.session_entry import (
    AppendInSession,
    CloseSession,
    KeepSessionAlive,
    OpenSession,
    SessionCommand,
)
from dledger.sessions.with_sessions import AnswerKind, SessionAnswer
from dledger.wire.client_protocol import Operation, Request, encode_answer, split_bodies

SESSION_OPERATIONS = frozenset(
    (
        Operation.SESSION_OPEN,
        Operation.SESSION_APPEND,
        Operation.SESSION_KEEP_ALIVE,
        Operation.SESSION_CLOSE,
    )
)

# Numbers that go into the log, as 8-byte integers.
_HIGHEST_NUMBER = 2**62


def encode_command(command: SessionCommand) -> tuple[Operation, list[int], bytes]:
    """Return the operation, numbers and payload of a command."""
    match command:
        case OpenSession(ttl_ms):
            return Operation.SESSION_OPEN, [ttl_ms], b""
        case AppendInSession(session, sequence, answered, bodies):
            sizes = [len(body) for body in bodies]
            return (
                Operation.SESSION_APPEND,
                [session, sequence, answered, *sizes],
                b"".join(bodies),
            )
        case KeepSessionAlive(session):
            return Operation.SESSION_KEEP_ALIVE, [session], b""
        case CloseSession(session):
            return Operation.SESSION_CLOSE, [session], b""


def decode_session_request(request: Request) -> SessionCommand:
    """Decode the command of a request. Raises MessageMalformed."""
    if any(number > _HIGHEST_NUMBER for number in request.numbers):
        raise MessageMalformed("a session number out of range")
    match request.operation, request.numbers:
        case Operation.SESSION_OPEN, [ttl_ms]:
            return OpenSession(ttl_ms)
        case Operation.SESSION_APPEND, [session, sequence, answered, *sizes] if sequence and sizes:
            bodies = split_bodies(request._replace(numbers=sizes))
            return AppendInSession(session, sequence, answered, bodies)
        case Operation.SESSION_KEEP_ALIVE, [session]:
            return KeepSessionAlive(session)
        case Operation.SESSION_CLOSE, [session]:
            return CloseSession(session)
        case _:
            raise MessageMalformed("a session request with wrong arguments")


def encode_session_answers(request_id: int, answers: Sequence[SessionAnswer]) -> bytes:
    rows = [
        [int(kind), number, -1 if result is None else len(result)]
        for kind, number, result in answers
    ]
    return encode_answer(request_id, rows, b"".join(answer.result or b"" for answer in answers))


def decode_session_answers(rows: object, payload: bytes) -> list[SessionAnswer]:
    """Decode the answers in an answer's value and payload. Raises MessageMalformed."""
    answers: list[SessionAnswer] = []
    at = 0
    try:
        for kind, number, size in rows:  # type: ignore[attr-defined]
            if not type(kind) is type(number) is type(size) is int:
                raise MessageMalformed("session answers with a field that is not a number")
            result = None if size < 0 else payload[at : at + size]
            answers.append(SessionAnswer(AnswerKind(kind), number, result))
            at += max(size, 0)
    except (TypeError, ValueError) as error:
        raise MessageMalformed("session answers with wrong fields") from error
    if at != len(payload) or not answers:
        raise MessageMalformed("session answers that do not fill the payload")
    return answers
