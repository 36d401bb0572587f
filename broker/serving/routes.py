"""Asks name servers where a topic is."""

from collections.abc import Callable, Sequence
from typing import Final

from broker.serving.parts import Shared
from remoting.bodies.route import TopicRoute, decode_route
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import FrameError, RemotingError

# A name server answers from memory.
_REQUEST_S: Final = 1.0

# Sends a question to an address; the callable is told the answer, or why there is none.
Ask = Callable[[str, Command, Callable[[Command | RemotingError], None], float], object]


class Routes:
    """Asks one name server after the other, until one answers.

    Args:
        ask: sends a question.
        nameservers: "host:port" of each.
    """

    def __init__(self, ask: Ask, nameservers: Sequence[str]) -> None:
        self._send = ask
        self._nameservers = tuple(nameservers)

    def find(self, topic: str, then: Callable[[TopicRoute | None], None]) -> None:
        """Ask; `then` is called once, with None when no name server knows the topic."""
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
