"""Refusals of requests whose append failed.

Code 14 says that nothing was stored: Java, Go and JavaScript clients try another broker or ask
again, the C++ client tries again, and the route they refresh names the new leader. Code 1 says that
the outcome is unknown. RocketMQ answers 1 or 2 for both.
"""

from collections.abc import Sequence

from broker.errors import EntryPassedOver, RequestRefused
from broker.log.folded import EntryRefused
from dledger import Appended, DLedgerError, EntryTooLarge, LogFull, Rejected
from remoting.wire.codes import MAY_BE_STORED, ResponseCode


def not_leader(broker_name: str) -> RequestRefused:
    return RequestRefused.not_available(
        f"this member does not lead {broker_name}: ask a name server for the route"
    )


def refused_append(error: DLedgerError) -> RequestRefused:
    if isinstance(error, LogFull):
        return RequestRefused.busy(f"[OVERLOAD]{error}")
    if isinstance(error, EntryTooLarge):
        return RequestRefused.illegal(str(error))
    if isinstance(error, Rejected) or error.retry_safe:
        return RequestRefused.not_available(f"not stored ({error}): send it again")
    return RequestRefused.failed(f"{MAY_BE_STORED}: {error}")


def refusal_of(outcome: Sequence[Appended] | DLedgerError) -> RequestRefused | None:
    """Return the refusal for entries of which one was not stored or not applied; None
    if all were.
    """
    if isinstance(outcome, DLedgerError):
        return refused_append(outcome)
    return next(filter(None, map(refusal_of_entry, outcome)), None)


def refusal_of_entry(entry: Appended) -> RequestRefused | None:
    """Return the refusal for an entry that the state machine refused; None if it was applied."""
    if not isinstance(entry.result, EntryRefused):
        return None
    return EntryPassedOver(
        ResponseCode.SYSTEM_ERROR,
        f"the log took it and the broker did not ({entry.result.reason}): send it again",
    )
