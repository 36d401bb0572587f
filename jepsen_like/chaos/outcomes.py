"""What an error of dledger says of a call: the one table of it in the harness."""

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
    """It happened, and returned this."""
    return Outcome(EventType.OK, value)


def failed(error: str) -> Outcome:
    """It certainly did not happen, and never will."""
    return Outcome(EventType.FAIL, None, error)


def unknown(error: str) -> Outcome:
    """It may happen at any time, or never."""
    return Outcome(EventType.INFO, None, error)


def outcome_of(error: DLedgerError) -> Outcome:
    """What an error says of an append.

    Rejected and Discarded are certain: it never happened. OutcomeUnknown says so itself; so do
    errors that end a node, whose appends may have left it. ResultNotKept belongs to an append that
    happened, but what it returned is not known, so a history cannot call it ok.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (Rejected, Discarded)):
        return failed(text)
    return unknown(text)
