"""Tells the name servers where the group's leader is and which topics it has.

Only the leader registers, always as broker id 0, with its term as the version that newer brokers of
RocketMQ compare. A follower does not register: it serves no pulls, and clients would be sent to it.

Brokers never unregister. A new leader's registration replaces the old one; some name servers would
drop the new one when the old leader unregisters. When a program ends it closes its connections, and
name servers drop it at once. A member that is asked to end says so in a heartbeat (904), so that
our name server does not count the close as a failure; RocketMQ's ignores that.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

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

T = TypeVar("T")

# RocketMQ's period; name servers drop a broker that is silent for 120 s.
REGISTER_S: Final = 30.0

# The pause before a failed or disconnected name server is tried again: after a restart it has
# forgotten this broker.
RETRY_S: Final = 1.0

# A registration takes no longer, or one dead name server would delay the first message of every
# topic.
ANNOUNCE_S: Final = 1.0

_REQUEST_S: Final = 3.0

# An ending member waits no longer for name servers to answer its farewell.
_FAREWELL_S: Final = 0.5


class Registrar:
    """Registers with every name server at once, every 30 s and after changes.

    Args:
        registration: makes the registration for the term that this member leads, in steps.
        led_term: the term this member leads, or None.
        proof: a secret of the group's members. Name servers that know it accept the name from no
            other group. "" while some members do not tell it yet.
    """

    def __init__(
        self,
        client: RemotingClient,
        config: BrokerConfig,
        registration: Callable[[int], Generator[None, None, BrokerRegistration]],
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
        """Register soon; then call `then`, even if name servers cannot be reached."""
        if then is not None:
            self._thens.append(then)
        self._wake.set()

    async def run(self) -> None:
        """Register whenever it is due, forever."""
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
            del thens  # frees the answered requests

    async def say_farewell(self) -> None:
        """Tell connected name servers that this member is about to end; half a second at most."""
        fields = {name: self._fields[name] for name in ("brokerAddr", "brokerName", "clusterName")}
        known = [one for one in self._nameservers if self._client.is_connected(one)]
        with trio.move_on_after(_FAREWELL_S):
            await self._ask(
                known,
                lambda: Command(RequestCode.BROKER_HEARTBEAT, {**fields, "ending": "true"}),
                lambda _nameserver, _result: None,
            )

    def _any_lost(self) -> bool:
        """Return whether, as far as we can tell, a name server does not know us."""
        return self._led_term() is not None and any(
            nameserver in self._problems or not self._client.is_connected(nameserver)
            for nameserver in self._nameservers
        )

    async def _register_everywhere(self) -> None:
        registration = await _taken(self._registration(self._led_term() or 0))
        body = await _taken(encode_registration_in_steps(registration))
        fields = {
            **self._fields,
            "bodyCrc32": str(registration_crc(body)),
            # For our own name server: topics that the body lacks are deleted.
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
        """Log changes of a name server's answers."""
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


async def _taken(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            value: T = ended.value
            return value
        await trio.lowlevel.checkpoint()
