"""The outcomes of calls, by the errors of dledger: the only such table in the harness."""

from __future__ import annotations

from typing import NamedTuple

from dledger.errors import Discarded, DLedgerError, Rejected
from jepsen_like.history.operation import EventType


class Outcome(NamedTuple):
    """How a call ended: ok with what it returned, fail or info with the reason."""

    type: EventType
    value: object = None
    error: str | None = None


def ok(value: object) -> Outcome:
    return Outcome(EventType.OK, value)


def failed(error: str) -> Outcome:
    return Outcome(EventType.FAIL, None, error)


def unknown(error: str) -> Outcome:
    return Outcome(EventType.INFO, None, error)


def outcome_of(error: DLedgerError) -> Outcome:
    """Return the outcome of an append that raised an error.

    Rejected and Discarded are certain: it never happened. OutcomeUnknown is not; nor are errors
    that end a node, whose appends may have left it. ResultNotKept belongs to an append that
    happened, but whose result is not known, so a history cannot call it ok.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (Rejected, Discarded)):
        return failed(text)
    return unknown(text)
