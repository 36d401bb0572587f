"""A member of a simulated group, for tests to look at."""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.member_state import Role
from dledger.state_machine import StateMachine
from jepsen_like.simulation.virtual_node import VirtualNode


class SimulatedMember:
    """One member, as it is now; `machine` returns its state machine."""

    def __init__(self, node: VirtualNode, machine: Callable[[str], StateMachine | None]) -> None:
        self._node = node
        self._machine = machine

    @property
    def name(self) -> str:
        """Its name: n0, n1 and so on."""
        return self._node.name

    @property
    def is_up(self) -> bool:
        """Whether its process runs; it may be frozen."""
        return self._node.is_up

    @property
    def is_frozen(self) -> bool:
        """Whether its process stands still."""
        return self._node.is_up and self._node.is_paused

    @property
    def role(self) -> Role | None:
        """Its role; None while it is down."""
        process = self._node.process
        return None if process is None else process.replica.state.role

    @property
    def leads(self) -> bool:
        """Whether it believes itself to be the leader. Several may, each of a term of its own."""
        return self.role is Role.LEADER

    @property
    def term(self) -> int:
        """Its term; 0 while it is down."""
        process = self._node.process
        return 0 if process is None else process.replica.state.term

    @property
    def last_index(self) -> int:
        """The last entry of its log, -1 if there is none or it is down."""
        process = self._node.process
        return -1 if process is None else process.store.last_index

    @property
    def committed(self) -> int:
        """The last entry that it knows to be committed, -1 if none or it is down."""
        process = self._node.process
        return -1 if process is None else process.replica.state.committed

    @property
    def applied(self) -> int:
        """The last entry that its state machine includes, -1 if none or it is down."""
        process = self._node.process
        return -1 if process is None else process.replica.state.applied

    @property
    def machine(self) -> StateMachine | None:
        """Its state machine as it is now; None while it is down. Look at it, do not change it."""
        return self._machine(self.name)

    def __repr__(self) -> str:
        role = "down" if self.role is None else self.role.name.lower()
        return f"<{self.name} {role} term {self.term} applied {self.applied}>"
