"""Simulated clients whose next call depends on the last answer: generators of the user's."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from jepsen_like.chance import Chance
from jepsen_like.chaos.service import Call, Caller, Described
from jepsen_like.history.operation import EventType
from jepsen_like.history.value import Value
from jepsen_like.simulation.service.clients_history import outcome_of
from jepsen_like.simulation.service.machine_error import called
from jepsen_like.simulation.service.request import Request
from jepsen_like.simulation.service.schedule import ADAPTIVE_BODY_BYTES
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.witness import InvariantViolated

# Clients that take turns. The client after one has its number plus this, as in histories.
ADAPTIVE_CLIENTS = 5


class Answer(NamedTuple):
    """What a client was told of its last call.

    Attributes:
        outcome: "ok", "fail" if it certainly changed nothing, "info" if its outcome is unknown.
        value: of a call that is ok: what the history has, with tuples for lists.
        why: why it failed, if there is more to say.
    """

    outcome: EventType
    value: Value = None
    why: Value = None

    @property
    def ok(self) -> bool:
        """Whether the call was done."""
        return self.outcome is EventType.OK


class _Client:
    def __init__(self, process: int, calls: Generator[Call, Answer | None, None]) -> None:
        self.process = process
        self.calls = calls
        self.last: Request | None = None


class AdaptiveClients:
    """All adaptive clients of a run.

    Each place has one client at a time. When its generator ends, a new client takes the place.
    After a call with an unknown outcome, the client goes on under another number.
    """

    def __init__(self, service: Service, seed: int) -> None:
        self._service = service
        self._seed = seed
        self._described: Described | None = None
        self._clients: dict[int, _Client] = {}

    def next_call(self, place: int) -> tuple[Call, int] | None:
        """Return a client's next call, and its number; None while the client waits for an answer.

        Raises InvariantViolated if the user's generator raises, or yields no Call.
        """
        client = self._clients.get(place)
        if client is None:
            client = self._clients[place] = self._new_client(place)
        answer = None
        if client.last is not None:
            if client.last.is_open:
                return None
            answer = Answer(*outcome_of(self._service, client.last))
            if answer.outcome is EventType.INFO:
                client.process += ADAPTIVE_CLIENTS
        call = called("client", _next, client.calls, answer)
        if call is None:
            self._clients[place] = client = self._new_client(client.process + ADAPTIVE_CLIENTS)
            call = called("client", _next, client.calls, None)
        if not isinstance(call, Call):
            raise InvariantViolated("client() yields calls", f"it yields {call!r:.100}")
        if len(call.entry) > ADAPTIVE_BODY_BYTES:
            how = f"one has {len(call.entry)} bytes, more than {ADAPTIVE_BODY_BYTES}"
            raise InvariantViolated("client() yields calls with short entries", how)
        return call, client.process

    def made(self, place: int, request: Request) -> None:
        """Note the request of the call that `next_call` returned."""
        self._clients[place].last = request

    def _new_client(self, process: int) -> _Client:
        assert self._service.described is not None
        if self._described is None:  # an object of its own: its state begins anew with each run
            made = called("machine", type(self._service.described.service))
            self._described = Described(made, self._service.described.name)
        caller = Caller(Chance(self._seed, f"client {process}"), process, process)
        calls = called("client", self._described.client, caller)
        if not isinstance(calls, Generator):
            raise InvariantViolated("client() is a generator", f"it returned {calls!r:.100}")
        return _Client(process, calls)


def _next(calls: Generator[Call, Answer | None, None], answer: Answer | None) -> Call | None:
    try:
        return calls.send(answer)
    except StopIteration:
        return None
