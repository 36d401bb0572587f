"""What a user gives to be simulated: a state machine, and what is known about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from dledger.machine_check import check_machine
from dledger.state_machine import StateMachine
from jepsen_like.checkers.models.model import Model
from jepsen_like.history.value import Value

if TYPE_CHECKING:
    from jepsen_like.simulation.service.world import World

# Bodies that are drawn for a machine about which nothing else is known.
LONGEST_RANDOM_BODY_BYTES = 32


def random_body(random: Random) -> bytes:
    """Some random bytes, as the body of an append."""
    return random.randbytes(1 + random.randrange(LONGEST_RANDOM_BODY_BYTES))


@dataclass(frozen=True)
class Service:
    """A state machine to simulate, and what is known about it. All but the machine may be left out.

    Attributes:
        machine: makes a new state machine, as each process of a member does when it starts.
        operations: draws the body of the next append; it must use no other source of chance.
        invariant: looks at a simulated group after every step that changed a member, and at the
            end; it raises an error (an `assert` will do) if something is wrong.
        state: what of a machine has to be the same on all members, as plain values or objects of
            them. Without it: all attributes of the machine.
        query: what a client reads from a machine: a plain value that has a hash. Without it nobody
            reads.
        reads_locally: whether clients read from any member without asking the group, as a program
            does that looks at its own machine and never calls `read`.
        model: what the service does if one operation follows another, as in `jepsen_like.checkers`.
            Appends have the function "append", the body as value, and the machine's result; reads
            have the function "read" and what `query` returned. Clients' histories must be
            linearizable by it.
    """

    machine: Callable[[], StateMachine]
    operations: Callable[[Random], bytes] = random_body
    invariant: Callable[[World], None] | None = None
    # The machine is the user's own class, which nobody else can name.
    state: Callable[[Any], object] | None = None
    query: Callable[[Any], Value] | None = None
    reads_locally: bool = False
    model: Model | None = None

    def new_machine(self) -> StateMachine:
        """A machine for a process that starts. Raises MachineUnusable."""
        machine = self.machine()
        check_machine(machine)
        return machine

    def state_of(self, machine: StateMachine) -> object:
        """What has to be the same on all members."""
        return machine if self.state is None else self.state(machine)


# What may be simulated: a service, or just what makes its machine.
Simulated = Service | Callable[[], StateMachine]


def service_of(simulated: Simulated) -> Service:
    """The service of what a user named."""
    return simulated if isinstance(simulated, Service) else Service(simulated)
