"""An error that says `retry_safe` means that nothing was done."""

from __future__ import annotations

from collections.abc import Iterator

from dledger_mq import errors
from dledger_mq.errors import CallMisplaced, ClientClosed, MessagingError, Rejected


def kinds(of: type[MessagingError]) -> Iterator[type[MessagingError]]:
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


def test_only_errors_of_what_never_happened_say_that_a_retry_is_safe() -> None:
    safe = {kind for kind in kinds(MessagingError) if kind.retry_safe}
    assert {Rejected, CallMisplaced, ClientClosed} <= safe
    assert all(issubclass(kind, Rejected | CallMisplaced | ClientClosed) for kind in safe)
    for unknown in (errors.OutcomeUnknown, errors.ClosedDuringCall, errors.SomeFailed):
        assert not unknown.retry_safe
