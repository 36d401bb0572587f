"""The invariants' record of one node, and the error for a broken promise."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.core.hard_state import HardState
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.declared_error import DeclaredError
from dledger.errors import DLedgerError


class InvariantViolated(DeclaredError):
    """A promise was broken: which one, and how, in one line."""

    promise: str
    how: str
    _template = "{promise}: {how}"


def broken_promise(error: InvariantViolated | DLedgerError) -> tuple[str, str]:
    """Return the promise that an error of a run breaks, and how."""
    if isinstance(error.__cause__, InvariantViolated):  # raised by a state machine
        error = error.__cause__
    if isinstance(error, InvariantViolated):
        return error.promise, error.how
    return f"no {type(error).__name__}", str(error)


def check_reads_end(name: str, begun: Iterable[float], now: float, wait_s: float) -> None:
    """Check after a turn that no open read is too old; `begun`: when each began."""
    oldest = min(begun, default=now)
    if now - oldest > wait_s:
        raise InvariantViolated(
            "reads are answered", f"{name} has left a read waiting for {now - oldest:.3f} s"
        )


class Witness:
    """What one node has shown and promised. Outlives its crashes."""

    __slots__ = (
        "applied",
        "chains",
        "committed",
        "lost_chains",
        "name",
        "released_term",
        "restart",
        "synced_index",
        "synced_promise",
        "term",
        "told",
        "votes",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        # Chain sum of every entry of its log, by index; where its log has no beginning, of those
        # that the group has committed, which it must be equal to.
        self.chains: list[int] = []
        self.restart: LogBegin | None = None  # the new beginning while its log is being replaced
        self.synced_index = -1  # the last entry that is on its disk in fact
        self.synced_promise = HardState()
        self.released_term = 0  # highest term that a promise of it carried
        self.votes: dict[int, str] = {}  # granted votes that left it, by term
        self.term = 0
        self.committed = -1
        self.applied = -1
        self.told = -1  # the last entry of a snapshot that its log has not reached yet
        # The chain sums that its disk had when it was wiped: they count as acknowledged, until it
        # has proven that it holds it again.
        self.lost_chains: list[int] = []
