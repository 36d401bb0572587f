"""A user's state machine as what the members of a simulated group run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dledger.state_machine import StateMachine
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.machine import MachineState
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.service.service_book import ServiceBook
from jepsen_like.simulation.service.service_member import ServiceMember, service_member
from jepsen_like.simulation.virtual_disk import VirtualDisk
from jepsen_like.simulation.watched_machine import WatchedMachine
from jepsen_like.simulation.witness import InvariantViolated

if TYPE_CHECKING:
    from jepsen_like.simulation.service.clients import ServiceClients
    from jepsen_like.simulation.virtual_node import VirtualNode


class ServiceApplication:
    """Implements Application.

    Args:
        service: what the members run.
        history, invariants: of the run.

    Attributes:
        book: what the log makes of the state.
        clients: told when members end.
        has_changed: whether a machine has changed since somebody looked.
        broken: an error of the user's code that a member would only log.
    """

    def __init__(self, service: Service, history: History, invariants: Invariants) -> None:
        self.book = ServiceBook(service)
        self.clients: ServiceClients | None = None
        self.has_changed = False
        self.broken: InvariantViolated | None = None
        self._service = service
        self._history = history
        self._invariants = invariants
        self._members: dict[str, ServiceMember] = {}
        self._up: set[str] = set()

    @property
    def is_restoring(self) -> bool:
        """Whether a member has a restored machine, and does not know of it yet."""
        return any(self._members[name].is_restoring for name in self._up)

    def machine_of(self, name: str) -> StateMachine | None:
        """The user's machine on a member; None while it is down."""
        return self._members[name].machine if name in self._up else None

    def machine(self, name: str, disk: VirtualDisk) -> ServiceMember:
        """The machine of a process that starts now."""
        del disk  # it keeps nothing on it
        state = MachineState(reads_sessions=False)
        member = service_member(
            name,
            WatchedMachine(name, self._history, self._invariants, state),
            self._service.new_machine(),
            self.book,
            self._changed,
            self._failed,
        )
        self._members[name] = member
        return member

    def _changed(self) -> None:
        self.has_changed = True

    def _failed(self, violation: InvariantViolated) -> None:
        self.broken = self.broken or violation

    def started(self, node: VirtualNode) -> None:
        """The process of a member runs."""
        self._up.add(node.name)
        self.has_changed = True

    def ended(self, node: VirtualNode) -> None:
        """The process of a member has ended."""
        self._up.discard(node.name)
        self.has_changed = True
        if self.clients is not None:
            self.clients.member_ended(node.name)

    def begin(self, nodes: Sequence[VirtualNode]) -> None:
        """The run begins."""

    def stop(self) -> None:
        """No more faults."""

    def is_settled(self, members: Sequence[VirtualNode]) -> bool:
        """Members have nothing to do besides the log."""
        return bool(members)

    def end(self) -> None:
        """The run is over."""

    def check(self, members: Sequence[VirtualNode]) -> None:
        """The end is checked by the World."""
