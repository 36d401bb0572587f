"""Requests that follow the leader: asked again, at the address it has then, until it answers."""

from collections.abc import Collection
from typing import Final

import trio

from dledger_mq.connection.client import Client
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

# What a broker answers that is not the leader, is not ready or is busy. It has done nothing, and
# the same request will succeed elsewhere or later.
NOT_NOW_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)

# How long a call follows elections when the caller does not say: three of them, at a second each,
# and a name server that has to be asked twice.
CALL_TIMEOUT_S: Final = 5.0

# One attempt. A leader that is paused or cut off does not answer, and another is elected meanwhile.
ATTEMPT_TIMEOUT_S: Final = 3.0

_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})

# A new leader serves about a second after the old one died; asking ten times in it finds it soon
# and costs a name server little.
FIRST_PAUSE_S: Final = 0.1

# A group whose members are all started again serves after one to three seconds: this is what a
# client adds to that at most.
RESTART_PAUSE_S: Final = 0.3

# After so many failures, about ten seconds, the outage is none of these.
LASTING_FAILURES: Final = 36

# Where an outage lasts, a request a second and client is enough.
LONGEST_PAUSE_S: Final = 1.0

_GROWTH: Final = 1.3


async def master_of(client: Client, queue: MessageQueue, *, refresh: bool = False) -> str:
    """The address of the broker that serves a queue.

    Args:
        client: whose routes to use.
        queue: the queue.
        refresh: ask a name server even if a route is known.

    Raises:
        NoMaster: the route names none now.
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
) -> Command:
    """Ask the broker that serves a queue, through elections and lost connections.

    The request must be one that may be carried out twice.

    Args:
        client: whose connections and routes to use.
        queue: the queue it is about.
        command: the request.
        what: what is asked for, for errors: "pull".
        accepted: response codes that are an answer; others are refusals.
        timeout_s: how long to go on.
        attempt_s: how long one attempt may take.

    Raises:
        ClientClosed, OtherLoop: see `Client.check_open`.
        RequestRefused: a broker answered with another code.
        RemotingError, NoMaster, RouteNotFound, NameServersUnreachable: what the last attempt failed
            with when the time was over.
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
            reply = await client.remoting.request(address, command, min(left, attempt_s))
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


def is_news(error: Exception, failures: int) -> bool:
    """Whether a failure is worth a line in the log: an election is told once.

    Args:
        error: the failure.
        failures: in a row.
    """
    is_election = isinstance(error, RequestRefused) and error.code in NOT_NOW_CODES
    return failures == 1 or not is_election


def pause_s(failures: int) -> float:
    """The pause after `failures` failures in a row: 0.1 s at first, growing to 0.3 s, and 1 s once
    the outage lasts.

    Args:
        failures: at least 1.
    """
    if failures > LASTING_FAILURES:
        return LONGEST_PAUSE_S
    # 1.3 ** 5 is over 3, so that a larger power need not be computed.
    return min(FIRST_PAUSE_S * _GROWTH ** min(failures - 1, 5), RESTART_PAUSE_S)
