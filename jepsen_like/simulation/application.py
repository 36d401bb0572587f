"""What the members of a simulated group run besides the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from dledger.core.replica import Replica
from dledger.entry import Entry
from dledger.store.segment_store import SegmentStore
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.machine import MachineState
from jepsen_like.simulation.virtual_disk import VirtualDisk
from jepsen_like.simulation.watched_machine import WatchedMachine

if TYPE_CHECKING:
    from jepsen_like.simulation.virtual_node import VirtualNode


class MemberMachine(Protocol):
    """The state machine of one process of a member, and what watches it."""

    @property
    def snapshot_format(self) -> str:
        """As in `dledger.SnapshottingMachine`."""
        ...

    @property
    def state(self) -> MachineState:
        """The sums and the sessions of the member."""
        ...

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Apply entries in log order; return the answers to clients."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """The state in chunks."""
        ...

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Take the state of a snapshot."""
        ...

    def begin(self, store: SegmentStore, replica: Replica) -> None:
        """Begin to watch: the member runs, and may have restored a snapshot before."""
        ...

    def moved(self) -> None:
        """The state changed: entries were applied, or a snapshot restored."""
        ...

    def follow(self) -> None:
        """Report applied entries that were not the application's."""
        ...


class Application(Protocol):
    """Makes the machines of members, and puts load on them."""

    def machine(self, name: str, disk: VirtualDisk) -> MemberMachine:
        """The machine of a process that starts now. May raise PowerCut."""
        ...

    def started(self, node: VirtualNode) -> None:
        """The process of a member runs."""
        ...

    def ended(self, node: VirtualNode) -> None:
        """The process of a member has ended, in whichever way."""
        ...

    def begin(self, nodes: Sequence[VirtualNode]) -> None:
        """The run begins: put load on the members."""
        ...

    def stop(self) -> None:
        """No more faults and no more load."""
        ...

    def is_settled(self, members: Sequence[VirtualNode]) -> bool:
        """Whether these members have nothing left to do; asked after `stop`."""
        ...

    def end(self) -> None:
        """The run is over, in whichever way."""
        ...

    def check(self, members: Sequence[VirtualNode]) -> None:
        """The members agree: check them. Raises InvariantViolated."""
        ...


class BareLog:
    """No application: members have the sums and sessions of the tier alone."""

    def __init__(self, history: History, invariants: Invariants) -> None:
        self._history = history
        self._invariants = invariants

    def machine(self, name: str, disk: VirtualDisk) -> WatchedMachine:
        """The machine of a process that starts now."""
        del disk  # it keeps nothing on it
        return WatchedMachine(name, self._history, self._invariants)

    def started(self, node: VirtualNode) -> None:
        """The process of a member runs."""

    def ended(self, node: VirtualNode) -> None:
        """The process of a member has ended."""

    def begin(self, nodes: Sequence[VirtualNode]) -> None:
        """The run begins."""

    def stop(self) -> None:
        """No more faults."""

    def is_settled(self, members: Sequence[VirtualNode]) -> bool:
        """Members without an application are always settled."""
        return bool(members)

    def end(self) -> None:
        """The run is over."""

    def check(self, members: Sequence[VirtualNode]) -> None:
        """There is nothing to check besides the log."""
