"""Asks name servers for routes of topics."""

from collections.abc import Callable, Sequence
from typing import Final

from broker.serving.parts import Shared
from remoting.bodies.route import TopicRoute, decode_route
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import FrameError, RemotingError

# A name server answers from memory.
_REQUEST_S: Final = 1.0

# Sends a request to an address; calls the callable with the answer or the error.
Ask = Callable[[str, Command, Callable[[Command | RemotingError], None], float], object]


class Routes:
    """Asks one name server after another until one answers."""

    def __init__(self, ask: Ask, nameservers: Sequence[str]) -> None:
        self._send = ask
        self._nameservers = tuple(nameservers)

    def find(self, topic: str, then: Callable[[TopicRoute | None], None]) -> None:
        """Ask; `then` is called once, with None if no name server knows the topic."""
        self._ask(0, topic, then)

    def _ask(self, number: int, topic: str, then: Callable[[TopicRoute | None], None]) -> None:
        if number >= len(self._nameservers):
            then(None)
            return

        def settle(result: Command | RemotingError) -> None:
            if isinstance(result, Command) and result.code == ResponseCode.SUCCESS:
                try:
                    route = decode_route(result.body)
                except FrameError:
                    route = None
                if route is not None:
                    then(route)
                    return
            self._ask(number + 1, topic, then)

        question = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        self._send(self._nameservers[number], question, settle, _REQUEST_S)


ROUTES: Final[Shared[Routes]] = Shared("routes")
