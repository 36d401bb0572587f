"""What clients ask about sessions, over the wire: round trips, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import MessageMalformed
from dledger.sessions.session_entry import (
    AppendInSession,
    CloseSession,
    KeepSessionAlive,
    OpenSession,
    SessionCommand,
)
from dledger.sessions.with_sessions import AnswerKind, SessionAnswer
from dledger.wire.client_protocol import Operation, Request, decode_request, encode_request
from dledger.wire.frame import FrameDecoder
from dledger.wire.session_protocol import (
    decode_session_answers,
    decode_session_request,
    encode_command,
    encode_session_answers,
)

NUMBERS = st.integers(0, 2**62)
COMMANDS = st.one_of(
    st.builds(OpenSession, NUMBERS),
    st.builds(
        AppendInSession,
        NUMBERS,
        st.integers(1, 2**62),
        NUMBERS,
        st.lists(st.binary(max_size=9), min_size=1, max_size=5),
    ),
    st.builds(KeepSessionAlive, NUMBERS),
    st.builds(CloseSession, NUMBERS),
)
ANSWERS = st.builds(
    SessionAnswer, st.sampled_from(AnswerKind), NUMBERS, st.none() | st.binary(max_size=9)
)


@given(COMMANDS)
def test_a_command_arrives_as_it_was_sent(command: SessionCommand) -> None:
    (frame,) = FrameDecoder().feed(encode_request(Request(1, *encode_command(command))))
    assert decode_session_request(decode_request(frame)) == command


@given(st.lists(ANSWERS, min_size=1, max_size=5))
def test_answers_arrive_as_they_were_sent(answers: list[SessionAnswer]) -> None:
    (frame,) = FrameDecoder().feed(encode_session_answers(1, answers))
    assert decode_session_answers(frame.header[2], frame.payload) == answers


@pytest.mark.parametrize(
    ("operation", "numbers", "payload"),
    [
        (Operation.SESSION_OPEN, [], b""),
        (Operation.SESSION_OPEN, [2**63], b""),
        (Operation.SESSION_APPEND, [1, 1, 1], b""),
        (Operation.SESSION_APPEND, [1, 0, 1, 1], b"a"),
        (Operation.SESSION_APPEND, [1, 1, 1, 2], b"a"),
        (Operation.SESSION_CLOSE, [1, 2], b""),
    ],
)
def test_a_request_of_another_shape_is_refused(
    operation: Operation, numbers: list[int], payload: bytes
) -> None:
    with pytest.raises(MessageMalformed):
        decode_session_request(Request(1, operation, numbers, payload))


@pytest.mark.parametrize(
    ("rows", "payload"),
    [(None, b""), ([], b""), ([1], b""), ([[99, 0, -1]], b""), ([[1, 0, 3]], b"ab")],
)
def test_answers_of_another_shape_are_refused(rows: object, payload: bytes) -> None:
    with pytest.raises(MessageMalformed):
        decode_session_answers(rows, payload)
