"""Errors that members answer, as objects of their own classes on the other side."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger import errors
from dledger.client.client_errors import RefusedByNode, UnknownToNode, answered_error
from dledger.core.membership import change_errors
from dledger.errors import Discarded, DLedgerError, OutcomeUnknown, Rejected
from dledger.sessions import session_errors
from dledger.wire.client_protocol import encode_error
from dledger.wire.frame import FrameDecoder

EXAMPLES: dict[str, object] = {"int": 7, "str": "x", "str | None": None, "list[str]": ["a", "b"]}


def every_error() -> list[type[DLedgerError]]:
    found = [
        each
        for module in (errors, session_errors, change_errors)
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Rejected | Discarded | OutcomeUnknown)
    ]
    return sorted(
        (
            each
            for each in set(found)
            if each not in (Rejected, OutcomeUnknown, change_errors.ChangeRefused)
            and each is not session_errors.ReservedBody  # only a member's own program meets it
            and each is not session_errors.SessionOutcomeUnknown  # nor does a member answer this
        ),
        key=lambda each: each.__name__,
    )


def received(error: DLedgerError) -> DLedgerError:
    (frame,) = FrameDecoder().feed(encode_error(1, error))
    _, _, name, fields, text = frame.header
    assert isinstance(fields, dict)
    return answered_error(str(name), fields, str(text))


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_an_object_of_its_class_with_its_fields_and_its_text(
    kind: type[DLedgerError],
) -> None:
    parameters = list(inspect.signature(kind).parameters.values())
    error = kind(*(EXAMPLES[str(parameter.annotation)] for parameter in parameters))
    found = received(error)
    assert type(found) is kind
    assert vars(found) == vars(error)
    assert str(found) == str(error)


def test_a_class_without_fields_arrives_too() -> None:
    assert type(received(OutcomeUnknown("x"))) is OutcomeUnknown
    assert isinstance(received(errors.NodeClosing()), Rejected)


def test_an_error_that_says_nothing_about_the_outcome_leaves_it_open() -> None:
    found = received(errors.LogCorrupt("/log", 7, "torn"))
    assert isinstance(found, UnknownToNode)
    assert (found.name, found.fields["offset"], str(found)[:4]) == ("LogCorrupt", 7, "/log")


def test_an_error_of_a_later_version_says_whether_it_is_safe_to_try_again() -> None:
    refused = answered_error("Newer", {"retry_safe": True}, "no")
    assert isinstance(refused, RefusedByNode)
    assert refused.retry_safe
    assert isinstance(answered_error("Newer", {"retry_safe": 1}, "no"), UnknownToNode)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("NotLeader", {"leader": 7, "term": 1}),
        ("NotLeader", {"leader": "n1", "term": "1"}),
        ("NotLeader", {"leader": "n1", "term": True}),
        ("NotLeader", {"leader": "n1"}),
        ("VotersSilent", {"members": ["n1", 7]}),
        ("VotersSilent", {"members": "n1"}),
        ("MessageMalformed", {"problem": "x"}),
        ("SystemExit", {}),
    ],
)
def test_fields_that_do_not_fit_their_class_make_no_object_of_it(
    name: str, fields: dict[str, object]
) -> None:
    found = answered_error(name, fields, "text")
    assert isinstance(found, UnknownToNode)
    assert (found.name, str(found)) == (name, "text")


JUNK = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text() | st.integers())


@given(
    st.sampled_from([kind.__name__ for kind in every_error()]) | st.text(),
    st.dictionaries(
        st.sampled_from(["leader", "term", "index", "members", "retry_safe", "reason", "self"])
        | st.text(),
        JUNK,
    ),
)
def test_whatever_a_hostile_member_calls_an_error_is_one_that_says_what_is_certain(
    name: str, fields: dict[str, object]
) -> None:
    error = answered_error(name, fields, "text")
    assert isinstance(error, Rejected | Discarded | OutcomeUnknown)
    if isinstance(error, errors.NotLeader):
        assert isinstance(error.leader, str | None)
        assert isinstance(error.term, int)
