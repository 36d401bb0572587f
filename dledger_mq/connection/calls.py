"""Requests that follow the leader: repeated at the current leader's address until it answers."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import trio

from dledger_mq.connection.client import Client
from dledger_mq.connection.topic_route import ClientRoute
from dledger_mq.errors import (
    MessagingError,
    NameServersUnreachable,
    NoMaster,
    NoNameServers,
    RequestRefused,
    RouteNotFound,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# Answers of a broker that is not the leader, is not ready or is busy. It has done nothing, and the
# same request will succeed elsewhere or later.
NOT_NOW_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)

# How long a call follows elections by default: three of a second each, and a name server that has
# to be asked twice.
CALL_TIMEOUT_S: Final = 5.0

# A leader that is paused or cut off does not answer, and another is elected within this time.
ATTEMPT_TIMEOUT_S: Final = 3.0

_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})

# A new leader serves about a second after the old one died. Asking ten times in this second finds
# it soon, and costs a name server little.
FIRST_PAUSE_S: Final = 0.1

# A group whose members were all restarted serves after one to three seconds. A client adds at most
# this pause.
RESTART_PAUSE_S: Final = 0.3

# After so many failures, about ten seconds, the outage is neither an election nor a restart.
LASTING_FAILURES: Final = 36

# In a long outage, one request a second from each client is enough.
LONGEST_PAUSE_S: Final = 1.0

_GROWTH: Final = 1.3


async def master_of(client: Client, queue: MessageQueue, *, refresh: bool = False) -> str:
    """Return the address of the broker that serves a queue; `refresh` asks a name server for it.

    Raises:
        NoMaster: the route has no leader now.
        RouteNotFound, NameServersUnreachable, RequestRefused: see `Routes.find`.
    """
    routes = client.routes
    route = await (routes.refresh(queue.topic) if refresh else routes.find(queue.topic))
    address = route.masters.get(queue.broker_name)
    if address is None:
        raise NoMaster(queue.topic, queue.broker_name)
    return address


async def call_master(
    client: Client,
    queue: MessageQueue,
    command: Command,
    what: str,
    *,
    accepted: Collection[int] = _SUCCESS,
    timeout_s: float = CALL_TIMEOUT_S,
    attempt_s: float = ATTEMPT_TIMEOUT_S,
    is_held: bool = False,
) -> Command:
    """Ask the broker that serves a queue, through elections and lost connections, for
    `timeout_s`.

    A broker that may hold the request (`is_held`) is left once another leads, if it is silent
    meanwhile. The request may be carried out twice. `what` is the request in words, for errors:
    "pull". Other response codes than `accepted` are refusals.

    Raises:
        ClientClosed, OtherLoop: see `Client.check_open`.
        RequestRefused: a broker answered with another code.
        RemotingError, NoMaster, RouteNotFound, NameServersUnreachable: the failure of the last
            attempt before the time was over.
    """
    deadline = trio.current_time() + timeout_s
    failures = 0
    failed_address = ""
    while True:
        client.check_open()
        problem: MessagingError | RemotingError
        try:
            address = await master_of(client, queue, refresh=failures > 0)
            if address == failed_address:
                await trio.sleep(pause_s(failures))
            left = max(deadline - trio.current_time(), 0.0)
            failed_address = address
            reply: Command | None = None
            with while_it_leads(client, queue, address) if is_held else nullcontext():
                reply = await client.remoting.request(address, command, min(left, attempt_s))
            if reply is None:
                raise NoMaster(queue.topic, queue.broker_name)
            if reply.code in accepted:
                return reply
            problem = RequestRefused(address, what, reply.code, reply.remark)
            if reply.code not in NOT_NOW_CODES:
                raise problem
        except RemotingError as error:
            problem = error
        except NoNameServers:
            raise
        except (NoMaster, RouteNotFound, NameServersUnreachable) as error:
            problem = error
            failed_address = ""
            await trio.sleep(pause_s(failures + 1))
        failures += 1
        if trio.current_time() >= deadline:
            raise problem


@contextmanager
def while_it_leads(client: Client, queue: MessageQueue, address: str) -> Iterator[None]:
    """Cancel the block once another broker leads: this one may hold a request, and be silent."""

    def look(route: ClientRoute) -> None:
        leader = route.masters.get(queue.broker_name)
        if route.topic == queue.topic and leader and leader != address:
            scope.cancel()

    with client.silence.held_by(address, queue), trio.CancelScope() as scope:
        client.routes.watch(look)
        try:
            yield
        finally:
            client.routes.unwatch(look)


def is_news(error: Exception, failures: int) -> bool:
    """Return whether to log the latest of several failures in a row: an election is logged once."""
    is_election = isinstance(error, RequestRefused) and error.code in NOT_NOW_CODES
    return failures == 1 or not is_election


def pause_s(failures: int) -> float:
    """Return the pause after this many failures in a row, at least 1: 0.1 s, growing to 0.3 s, and
    1 s in a long outage.
    """
    if failures > LASTING_FAILURES:
        return LONGEST_PAUSE_S
    # 1.3 ** 5 is over 3, so that a larger power need not be computed.
    return min(FIRST_PAUSE_S * _GROWTH ** min(failures - 1, 5), RESTART_PAUSE_S)
