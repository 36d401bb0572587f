"""The application of a simulated service: members run the user's state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.state_machine import StateMachine
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.invariants import Invariants
from jepsen_like.simulation.machine import MachineState
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.service.service_book import ServiceBook
from jepsen_like.simulation.service.service_member import ServiceMember, service_member
from jepsen_like.simulation.virtual_disk import VirtualDisk
from jepsen_like.simulation.virtual_node import Application, VirtualNode
from jepsen_like.simulation.watched_machine import WatchedMachine
from jepsen_like.simulation.witness import InvariantViolated

if TYPE_CHECKING:
    from jepsen_like.simulation.service.clients import ServiceClients


class ServiceApplication(Application):
    """Makes the user's machines, and has them checked.

    `broken` is an error of the user's code that a member would only log.
    """

    def __init__(self, service: Service, history: History, invariants: Invariants) -> None:
        super().__init__(history, invariants)
        self.book = ServiceBook(service)
        self.clients: ServiceClients | None = None
        self.has_changed = False
        self.broken: InvariantViolated | None = None
        self._service = service
        self._members: dict[str, ServiceMember] = {}
        self._up: set[str] = set()

    @property
    def is_restoring(self) -> bool:
        """Whether a member's machine was restored, and the member does not know of it yet."""
        return any(self._members[name].is_restoring for name in self._up)

    def machine_of(self, name: str) -> StateMachine | None:
        """Return the user's machine on a member; None while it is down."""
        return self._members[name].machine if name in self._up else None

    def machine(self, name: str, disk: VirtualDisk) -> ServiceMember:
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
        self._up.add(node.name)
        self.has_changed = True

    def ended(self, node: VirtualNode) -> None:
        self._up.discard(node.name)
        self.has_changed = True
        if self.clients is not None:
            self.clients.member_ended(node.name)
