"""The record of a member's promises on disk, and what has yet to be written to it."""

from __future__ import annotations

from dledger.core.agenda import WRITE
from dledger.core.hard_state import HardState
from dledger.core.member_state import MemberState


class PromiseRecord:
    """Tracks term, vote and configuration: present, handed to the store, and on disk.

    Term and vote are promises (Raft, figure 2): a message that rests on them leaves only once they
    are on disk. The record also holds a commit index, so that a member knows after a crash which
    configuration is in force.
    """

    __slots__ = ("_durable_committed", "_recorded_change", "_state", "_taken", "durable")

    def __init__(self, state: MemberState, found: HardState) -> None:
        self._state = state
        self.durable = (found.term, found.voted_for)
        self._taken = self.durable
        self._recorded_change = state.membership.index  # handed to the store as committed
        self._durable_committed = state.committed

    @property
    def is_durable(self) -> bool:
        """Whether the present term and vote are on disk."""
        return self.durable == (self._state.term, self._state.voted_for)

    @property
    def change_is_durable(self) -> bool:
        """Whether this member will know after a crash which configuration is in force.

        This must hold before any member relies on the change. Otherwise a member could forget after
        a crash that the change is committed, and the removed members that could help to commit it
        again may have stopped.
        """
        return self._state.membership.index <= self._durable_committed

    @property
    def is_due(self) -> bool:
        state = self._state
        promised = (state.term, state.voted_for)
        return promised != self._taken or (
            self._recorded_change < state.membership.index <= state.durable
        )

    def take(self) -> HardState | None:
        """Return the record to write now; None unless it is due."""
        state = self._state
        if self._recorded_change < state.membership.index > state.durable:
            state.agenda.later |= WRITE  # due once that configuration is durable
        if not self.is_due:
            return None
        self._taken = (state.term, state.voted_for)
        change = min(state.membership.index, state.durable)
        self._recorded_change = max(self._recorded_change, change)
        return state.hard_state

    def persisted(self, written: HardState, durable: int) -> None:
        """Note that the record `written` is on disk, with a log that is durable up to `durable`."""
        self.durable = (written.term, written.voted_for)
        # Recovery trusts the commit index of the record only up to the end of the durable log.
        committed = min(written.committed, durable)
        self._durable_committed = max(self._durable_committed, committed)
