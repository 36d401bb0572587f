"""The interface of a replicated service to a run: its machine, its calls, and its checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dledger.declared_error import DeclaredError
from dledger.state_machine import StateMachine
from jepsen_like.chance import Chance
from jepsen_like.history.value import Value, thawed


class CallFailed(DeclaredError):
    """A call certainly changed nothing, such as a failed comparison. Its text says why."""

    problem: str


@dataclass(frozen=True)
class Call:
    """One operation of a client.

    Args:
        function: its name, as the history and the model have it.
        key: the object that it is about; keys are checked apart from each other.
        value: its argument, as the history has it.
        body: the entry to append; unless given, the call as JSON: `[function, key, value]`.
        is_read: it appends nothing: after a linearizable read, the service's `query` answers it.
    """

    function: str
    key: Value = None
    value: object = None
    body: bytes | None = None
    is_read: bool = False

    @property
    def entry(self) -> bytes:
        """The body of the entry that is appended."""
        if self.body is not None:
            return self.body
        return json.dumps([self.function, self.key, thawed(self.value)]).encode()


class Caller(NamedTuple):
    """The client that makes the next call.

    `random` is the client's own stream of choices, made from the seed of the run. `process` is its
    number in the history. `number` counts the calls of all clients: it is unique in a run, so it
    serves as a value that differs from all others.
    """

    random: Chance
    process: int
    number: int


class ServiceUnderTest(Protocol):
    """A replicated service under test: the interface of workloads, built in and of users.

    `machine` makes the state machine of a member: a class without arguments, as a rule.

    Some further attributes are used if a service has them:

    - `model`: the promise of the history: a name of `jepsen-like check --model`, or a class of the
      same module with `initial` and `step`, or such an object. Without one, only the outcomes are
      counted, and the invariants below decide;
    - `settings`: further fields of the history's header, such as `{"initial": 0}`;
    - `query(machine, call)`: the answer to a call with `is_read`, from the machine of a member;
    - `answered(call, result)`: the history's value for what `apply` returned; it raises CallFailed
      if the result says that nothing was changed. Unless given, the result itself;
    - `invariant(machine)`: what is wrong with the state of a member, in a sentence, or None. Asked
      once a second on each member, and at the end;
    - `state(machine)`: a plain value that must be equal on all members at the end;
    - `client(caller)`: in simulations, in the place of `generate`: a generator of the calls of one
      client, which is sent the Answer to each;
    - `final()`: calls that are made at the end, of each member: reads of the whole state.

    An explanation of one line, for `jepsen-like list`, is the first line of its docstring.
    """

    @property
    def machine(self) -> Callable[[], StateMachine]: ...

    def generate(self, caller: Caller, /) -> Call: ...


class ServiceUnusable(DeclaredError):
    """A name leads to no service. Its text is one line that says what to do."""

    problem: str


class Described:
    """A service, with defaults for the attributes that it lacks."""

    def __init__(self, service: ServiceUnderTest, name: str) -> None:
        self.service = service
        self.name = name

    @property
    def model(self) -> object:
        """The name of a model, a model, or None."""
        return getattr(self.service, "model", None)

    @property
    def model_name(self) -> str | None:
        """The name by which `jepsen-like check --model` finds the model."""
        model = self.model
        if model is None or isinstance(model, str):
            return model
        kind = model if isinstance(model, type) else type(model)
        return f"{kind.__module__}:{kind.__qualname__}"

    @property
    def settings(self) -> Mapping[str, object]:
        settings: Mapping[str, object] = getattr(self.service, "settings", {})
        return settings

    @property
    def explanation(self) -> str:
        return (type(self.service).__doc__ or self.name).strip().splitlines()[0]

    @property
    def adapts(self) -> bool:
        """Whether the service has clients whose calls depend on answers: see `client`."""
        return hasattr(self.service, "client")

    def client(self, caller: Caller) -> object:
        """Return the generator of one client's calls; only for a service that `adapts`."""
        client: Callable[[Caller], object] = self.service.client  # type: ignore[attr-defined]
        return client(caller)

    def query(self, machine: Any, call: Call) -> object:
        """Answer a read. Raises ServiceUnusable if the service has no `query`."""
        query = getattr(self.service, "query", None)
        if query is None:
            raise ServiceUnusable(f"{self.name} makes calls with is_read, and has no query()")
        return query(machine, call)

    @property
    def reads_results(self) -> bool:
        """Whether the service needs the results of `apply`."""
        return hasattr(self.service, "answered")

    def answered(self, call: Call, result: object) -> object:
        """Return the history's value for a result of `apply`. Raises CallFailed."""
        answered = getattr(self.service, "answered", None)
        return result if answered is None else answered(call, result)

    def invariant(self, machine: Any) -> str | None:
        invariant = getattr(self.service, "invariant", None)
        return None if invariant is None else invariant(machine)

    @property
    def has_invariant(self) -> bool:
        """Whether members have an invariant to check while they run."""
        return hasattr(self.service, "invariant")

    def state(self, machine: Any) -> object:
        """Return the state as a plain value; None if the service does not give it."""
        state = getattr(self.service, "state", None)
        return None if state is None else state(machine)

    def final(self) -> Sequence[Call]:
        final = getattr(self.service, "final", None)
        return () if final is None else tuple(final())
