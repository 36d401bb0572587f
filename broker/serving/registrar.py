"""Tells the name servers where the group's leader is and which topics it has.

Only the leader registers, always as broker id 0, with its term as the version that newer brokers of
RocketMQ compare. A follower is not registered: it serves no pulls yet, and a client would be sent
to it. No broker unregisters: a new leader's registration replaces the old one's, which some name
servers would drop by the old one's goodbye, and a program that ends closes its connections, by
which name servers drop it at once. A member that is asked to end says so in a heartbeat (904), so
that our name server takes the close for no failure; RocketMQ's pass that over.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Final

import trio

from broker.config import BrokerConfig
from broker.log.one_by_one import call_each
from dledger.wake_up import WakeUp
from remoting.bodies.registration import (
    BrokerRegistration,
    encode_registration_in_steps,
    registration_crc,
)
from remoting.bodies.route import MASTER_ID
from remoting.net.client import RemotingClient
from remoting.net.errors import ConnectionClosed
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# RocketMQ's period; name servers drop a broker that is silent for 120 s.
REGISTER_S: Final = 30.0

# How soon a name server that failed, or that lost our connection, is tried again: a name server
# that restarts knows nothing.
RETRY_S: Final = 1.0

# What waits for a registration waits no longer than this, or one dead name server would hold up
# the first message of every topic.
ANNOUNCE_S: Final = 1.0

_REQUEST_S: Final = 3.0

# A member that ends waits no longer for name servers to hear of it.
_FAREWELL_S: Final = 0.5


class Registrar:
    """Registers with every name server at once, every 30 s and whenever something changed.

    Args:
        client: sends the registrations.
        config: names the broker, its addresses and the name servers.
        registration: the topics as they are now, for the term that this member leads.
        led_term: the term this member leads, or None.
        proof: what the members of this group share, for name servers that let no other group take
            its name; "" while some of them do not tell it yet.
    """

    def __init__(
        self,
        client: RemotingClient,
        config: BrokerConfig,
        registration: Callable[[int], BrokerRegistration],
        led_term: Callable[[], int | None],
        proof: Callable[[], str] = str,
    ) -> None:
        self._proof = proof
        self._client = client
        self._nameservers = config.nameservers
        self._fields = {
            "brokerAddr": str(config.address),
            "brokerId": str(MASTER_ID),
            "brokerName": config.group,
            "clusterName": config.cluster,
        }
        if config.listen_group is not None:  # then the address is that of the group
            self._fields["directAddr"] = str(config.address_for_members)
        self._registration = registration
        self._led_term = led_term
        self._wake = WakeUp()
        self._thens: list[Callable[[], None]] = []
        self._problems: dict[str, str] = {}

    def announce(self, then: Callable[[], None] | None = None) -> None:
        """Register soon; then call `then`, also when name servers cannot be reached."""
        if then is not None:
            self._thens.append(then)
        self._wake.set()

    async def run(self) -> None:
        """Register whenever it is due, for ever."""
        due = trio.current_time()
        while True:
            with trio.move_on_at(min(due, trio.current_time() + RETRY_S)) as pause:
                await self._wake.wait()
            now = trio.current_time()
            if pause.cancelled_caught and now < due and not self._any_lost():
                continue
            thens, self._thens = self._thens, []
            if self._led_term() is not None:
                await self._register_everywhere()
            due = now + REGISTER_S
            call_each("what waited for a registration", thens)
            del thens  # and the requests in them, which are answered

    async def say_farewell(self) -> None:
        """Tell the name servers that know this member that it is about to end; half a second at
        most.
        """
        fields = {name: self._fields[name] for name in ("brokerAddr", "brokerName", "clusterName")}
        known = [one for one in self._nameservers if self._client.is_connected(one)]
        with trio.move_on_after(_FAREWELL_S):
            await self._ask(
                known,
                lambda: Command(RequestCode.BROKER_HEARTBEAT, {**fields, "ending": "true"}),
                lambda _nameserver, _result: None,
            )

    def _any_lost(self) -> bool:
        """Whether a name server does not know us, as far as we can tell."""
        return self._led_term() is not None and any(
            nameserver in self._problems or not self._client.is_connected(nameserver)
            for nameserver in self._nameservers
        )

    async def _register_everywhere(self) -> None:
        steps = encode_registration_in_steps(self._registration(self._led_term() or 0))
        body = await _taken(steps)
        fields = {
            **self._fields,
            "bodyCrc32": str(registration_crc(body)),
            # For our own name server: topics that are not in the body are gone.
            "completeTopics": "true",
            "compressed": "false",
            "haServerAddr": self._fields["brokerAddr"],
        }
        if proof := self._proof():
            fields["groupProof"] = proof
        with trio.move_on_after(ANNOUNCE_S):
            await self._ask(
                self._nameservers,
                lambda: Command(RequestCode.REGISTER_BROKER, dict(fields), body),
                self._note,
            )

    async def _ask(
        self,
        nameservers: Sequence[str],
        command: Callable[[], Command],
        told: Callable[[str, Command | RemotingError], None],
    ) -> None:
        """Send a command to name servers, and wait until all have answered."""
        waiting = set(nameservers)
        answered = trio.Event()

        def settle(nameserver: str, result: Command | RemotingError) -> None:
            told(nameserver, result)
            waiting.discard(nameserver)
            if not waiting:
                answered.set()

        for nameserver in nameservers:
            self._client.request_nowait(
                nameserver,
                command(),
                lambda result, nameserver=nameserver: settle(nameserver, result),  # type: ignore[misc]
                _REQUEST_S,
            )
        if nameservers:
            await answered.wait()

    def _note(self, nameserver: str, result: Command | RemotingError) -> None:
        """Remember how a name server answered; log when that changes."""
        if isinstance(result, ConnectionClosed) and result.is_own_end:
            return  # this broker ends
        problem: str | None = None
        if isinstance(result, RemotingError):
            problem = str(result)
        elif result.code != ResponseCode.SUCCESS:
            problem = f"answered {result.code}: {result.remark}"
        if problem is None:
            if self._problems.pop(nameserver, None) is not None:
                _log.warning("name server %s knows this broker again", quoted(nameserver))
        elif self._problems.get(nameserver) != problem:
            self._problems[nameserver] = problem
            _log.warning(
                "name server %s does not know this broker: %s",
                quoted(nameserver),
                quoted(problem, 300),
            )


async def _taken(steps: Generator[None, None, bytes]) -> bytes:
    """What the steps return, with other tasks between them."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            body: bytes = ended.value
            return body
        await trio.lowlevel.checkpoint()
