"""The proxies that are connected, which are asked about the consumers that came through them.

A proxy says so in its heartbeats, by a producer group of this name. Its consumers are in no table
of the broker: they share no queues, and a proxy has tens of thousands of them. With access control
only a super user is a proxy: what it is asked may have a message in it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.producers.members import PRODUCERS
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from remoting.bodies.heartbeat import PROXIES_GROUP
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command, server_request
from remoting.wire.errors import RemotingError

# More proxies than a cluster has. Those beyond are not asked.
MAX_PROXIES: Final = 64

# A proxy gives its client eight seconds. RocketMQ's broker waits for ten.
ASK_S: Final = 10.0

# What a proxy knows by itself. RocketMQ's tools wait for five seconds: a proxy that hangs must not
# keep them from the other members.
TELL_S: Final = 3.0

Outcomes = Sequence[Command | RemotingError]


class Proxies:
    """The proxies among the producers."""

    def __init__(self, parts: Parts) -> None:
        self._producers = parts[PRODUCERS]
        self._access = parts[ACCESS_GUARD]

    def connected(self) -> list[Origin]:
        """Return the connections of proxies, one of each."""
        found: dict[Origin, None] = {}
        for client, member in self._producers.members(PROXIES_GROUP).items():
            if not client.origin.is_closed and self._access.may_speak_for_others(member.user):
                found[client.origin] = None
            if len(found) == MAX_PROXIES:
                break
        return list(found)

    def ask(
        self,
        proxies: Sequence[Origin],
        code: RequestCode,
        fields: dict[str, str],
        body: bytes,
        answered: Callable[[Outcomes], None],
    ) -> None:
        """Ask some proxies the same, at least one; `answered` is called once, with all outcomes."""
        self._ask(proxies, code, fields, body, answered, ASK_S)

    def ask_for_members(
        self, proxies: Sequence[Origin], group: str, answered: Callable[[Outcomes], None]
    ) -> None:
        """Ask for the members of a consumer group, as `ask`."""
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        self._ask(proxies, code, {"consumerGroup": group}, b"", answered, TELL_S)

    @staticmethod
    def _ask(
        proxies: Sequence[Origin],
        code: RequestCode,
        fields: dict[str, str],
        body: bytes,
        answered: Callable[[Outcomes], None],
        timeout_s: float,
    ) -> None:
        outcomes: list[Command | RemotingError | None] = [None] * len(proxies)
        left = set(range(len(proxies)))

        def settle(number: int, outcome: Command | RemotingError) -> None:
            outcomes[number] = outcome
            left.discard(number)
            if not left:
                answered([one for one in outcomes if one is not None])

        for number, proxy in enumerate(proxies):
            request = server_request(code, dict(fields), body)
            proxy.request(request, partial(settle, number), timeout_s)


PROXIES: Final = Shared("proxies", Proxies)
