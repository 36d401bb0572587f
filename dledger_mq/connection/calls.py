"""Requests that follow the leader: asked again, at the address it has then, until it answers."""

from collections.abc import Collection
from typing import Final

import trio

from dledger_mq.connection.client import Client
from dledger_mq.connection.pauses import pause_seconds
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
CALL_TIMEOUT_SECONDS: Final = 5.0

# One attempt. A leader that is paused or cut off does not answer, and another is elected meanwhile.
ATTEMPT_TIMEOUT_SECONDS: Final = 3.0

_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})


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
    timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    attempt_seconds: float = ATTEMPT_TIMEOUT_SECONDS,
) -> Command:
    """Ask the broker that serves a queue, through elections and lost connections.

    The request must be one that may be carried out twice.

    Args:
        client: whose connections and routes to use.
        queue: the queue it is about.
        command: the request.
        what: what is asked for, for errors: "pull".
        accepted: response codes that are an answer; others are refusals.
        timeout_seconds: how long to go on.
        attempt_seconds: how long one attempt may take.

    Raises:
        ClientClosed, OtherLoop: see `Client.check_open`.
        RequestRefused: a broker answered with another code.
        RemotingError, NoMaster, RouteNotFound, NameServersUnreachable: what the last attempt failed
            with when the time was over.
    """
    deadline = trio.current_time() + timeout_seconds
    failures = 0
    failed_address = ""
    while True:
        client.check_open()
        problem: MessagingError | RemotingError
        try:
            address = await master_of(client, queue, refresh=failures > 0)
            if address == failed_address:
                await trio.sleep(pause_seconds(failures))
            left = max(deadline - trio.current_time(), 0.0)
            failed_address = address
            reply = await client.remoting.request(address, command, min(left, attempt_seconds))
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
            await trio.sleep(pause_seconds(failures + 1))
        failures += 1
        if trio.current_time() >= deadline:
            raise problem
