"""A member's state machine that reports everything it applies to the invariants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from dledger.core.replica import Replica
from dledger.entry import Entry, decode_entries
from dledger.store.segment_store import SegmentStore
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.machine import FORMAT, MachineState
from jepsen_like.simulation.written_log import READ_BYTES


class MemberMachine(Protocol):
    """The state machine of one process of a member, and what watches it."""

    @property
    def snapshot_format(self) -> str: ...

    @property
    def state(self) -> MachineState:
        """The sums and the sessions of the member."""
        ...

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]: ...

    def snapshot(self) -> Iterator[bytes]: ...

    def restore(self, chunks: Iterator[bytes]) -> None: ...

    def begin(self, store: SegmentStore, replica: Replica) -> None:
        """Begin to watch a running member, which may have restored a snapshot before."""
        ...

    def moved(self) -> None:
        """Report that the state changed: entries were applied, or a snapshot restored."""
        ...

    def follow(self) -> None:
        """Report applied entries that were not the application's."""
        ...


class WatchedMachine:
    """Applies entries to a MachineState; reports no-ops and configurations as well."""

    snapshot_format = FORMAT

    def __init__(
        self,
        name: str,
        history: History,
        invariants: Invariants,
        state: MachineState | None = None,
    ) -> None:
        self.state = state if state is not None else MachineState()
        self._name = name
        self._history = history
        self._invariants = invariants
        self._store: SegmentStore | None = None
        self._replica: Replica | None = None
        self._next = 0  # the entry that comes next
        self._restored = 0

    def begin(self, store: SegmentStore, replica: Replica) -> None:
        self._store, self._replica = store, replica
        self.moved()

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self._pass_over(entries[0].index)
        sums, answers = [], []
        for entry in entries:
            answers += self.state.apply([entry])
            sums.append(self.state.sums.sum)
        self._tell(entries, sums)
        self._history.sessions.applied(self._name, entries, answers)
        return answers

    def snapshot(self) -> Iterator[bytes]:
        return self.state.snapshot()

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.state.restore(chunks)

    def moved(self) -> None:
        assert self._replica is not None
        applied = self._replica.state.applied
        if self.state.restored > self._restored:
            self._restored = self.state.restored
            self._invariants.restored(self._name, applied, self.state.sums.sum)
            self._next = applied + 1
        self.follow()

    def follow(self) -> None:
        assert self._replica is not None
        self._pass_over(self._replica.state.applied + 1)

    def _pass_over(self, index: int) -> None:
        """Report entries before `index` that the application does not get: no-ops and changes."""
        while self._next < index:
            assert self._store is not None
            raw = self._store.read(self._next, index - 1, READ_BYTES)
            entries = decode_entries(raw)
            self._tell(entries, self.state.sums.apply(entries))

    def _tell(self, entries: Sequence[Entry], sums: Sequence[int]) -> None:
        assert self._replica is not None
        # On a quick disk a member may be proven, elected and apply in one turn.
        self._invariants.look_at_standing(self._name, self._replica)
        self._invariants.check_committed(self._name, self._replica.state.committed)
        self._history.applied(entries)
        self._invariants.applied(self._name, entries[0].index, sums)
        self._next = entries[-1].index + 1
