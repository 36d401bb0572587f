"""What a user simulates: a state machine, and what is known about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dledger.errors import MachineUnusable
from dledger.machine_check import check_machine
from dledger.state_machine import StateMachine
from jepsen_like.chaos.service import Call, Caller, Described, ServiceUnderTest
from jepsen_like.checkers.models.model import Model
from jepsen_like.history.value import Value
from jepsen_like.simulation.service.machine_error import called
from jepsen_like.simulation.witness import InvariantViolated

# The longest body that is drawn for a machine about which nothing else is known.
LONGEST_RANDOM_BODY_BYTES = 32


def random_body(random: Random) -> bytes:
    """Return some random bytes, as the body of an append."""
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
        query: what a client reads from a machine: a plain value that has a hash. Without it clients
            do not read.
        reads_locally: whether clients read from any member without asking the group, as a program
            does that looks at its own machine and never calls `read`.
        described: a service as `jepsen-like run --service` takes it; see `service_of`. Its calls
            take the place of `operations`, and its checker that of `model`.
        model: what the service does if one operation follows another, as in `jepsen_like.checkers`.
            Appends have the function "append", the body as value, and the machine's result; reads
            have the function "read" and what `query` returned. Clients' histories must be
            linearizable by it.
    """

    machine: Callable[[], StateMachine]
    operations: Callable[[Random], bytes] = random_body
    # Takes a World, which imports this file.
    invariant: Callable[[Any], None] | None = None
    # Takes the user's own class, which has no name here.
    state: Callable[[Any], object] | None = None
    query: Callable[[Any], Value] | None = None
    reads_locally: bool = False
    model: Model | None = None
    described: Described | None = None

    @property
    def checked(self) -> bool:
        """Whether clients' histories are checked."""
        return self.model is not None or (
            self.described is not None and self.described.model is not None
        )

    def final(self) -> Sequence[Call]:
        """Return the reads that are made of each member in the end."""
        return () if self.described is None else called("final", self.described.final)

    def new_machine(self) -> StateMachine:
        """Make a machine for a process that starts. Raises MachineUnusable."""
        machine = called("machine", self.machine)
        check_machine(machine)
        return machine

    def check(self) -> None:
        """Raise MachineUnusable if machines cannot be made, or are one and the same object."""
        first, second = self.machine(), self.machine()
        check_machine(first)
        if first is second:
            problem = "is made once only: every process needs a machine of its own"
            raise MachineUnusable(type(first).__name__, problem)

    def state_of(self, machine: StateMachine) -> object:
        """Return the state that must be the same on all members."""
        return machine if self.state is None else called("state", self.state, machine)

    def next_body(self, random: Random) -> bytes:
        """Draw the body of the next append. Raises InvariantViolated if `operations` raises."""
        return called("operations", lambda: bytes(memoryview(self.operations(random))))

    def next_call(self, described: Described, caller: Caller) -> Call:
        """Draw the next call of a client. Raises InvariantViolated if `generate` raises."""
        call = called("generate", described.service.generate, caller)
        if not isinstance(call, Call):
            raise InvariantViolated("generate() returns a Call", f"it returned {call!r:.100}")
        return call

    def answer(self, machine: StateMachine | None, call: Call | None) -> object:
        """Return the answer to a read. Raises InvariantViolated if `query` raises."""
        if self.described is not None and call is not None:
            return called("query", self.described.query, machine, call)
        if self.query is None or machine is None:
            return machine
        return called("query", self.query, machine)


# What may be simulated: a service, just what makes its machine, or a class with `machine` and
# `generate`, as `jepsen-like run --service` takes it, or `client`.
Simulated = Service | Callable[[], StateMachine] | ServiceUnderTest | type


def service_of(simulated: Simulated) -> Service:
    """Return the service of a class, a function or an object that a user named.

    A class (or an object of one) that is written for `jepsen-like run --service` has its calls,
    queries, invariant and model used here as well. One with `client` may do without `generate`.
    """
    if isinstance(simulated, Service):
        return simulated
    makes_calls = hasattr(simulated, "generate") or hasattr(simulated, "client")
    if makes_calls and hasattr(simulated, "machine"):
        made: Any = simulated() if isinstance(simulated, type) else simulated
        name = type(made).__name__
        described = Described(made, name)
        return Service(
            machine=described.service.machine,
            invariant=_Invariant(described) if described.has_invariant else None,
            state=getattr(described.service, "state", None),
            described=described,
        )
    machine: Any = simulated
    return Service(machine)


class _Invariant:
    """Asks each member's machine what is wrong with it."""

    def __init__(self, described: Described) -> None:
        self._described = described

    def __call__(self, world: Any) -> None:
        for name, machine in sorted(world.machines.items()):
            problem = self._described.invariant(machine)
            if problem is not None:
                raise InvariantViolated(
                    f"the invariant of {self._described.name} holds", f"{name}: {problem}"
                )
