"""Sends requests to the leaders of all groups of brokers, through elections."""

from collections.abc import Collection, Mapping
from typing import Final

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.calls import ATTEMPT_TIMEOUT_S, NOT_NOW_CODES, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.errors import (
    MessagingError,
    NameServersUnreachable,
    NoMaster,
    RequestRefused,
    outcome_unknown,
)
from remoting.bodies.route import BrokerData, decode_cluster_info
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# How long requests are repeated during an election.
ORDER_TIMEOUT_S: Final = 10.0

_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})


class Leaders:
    """Finds the leaders through the name servers of a client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def brokers(self) -> list[BrokerData]:
        """Return the groups of brokers that the name servers know, sorted by name."""
        reply = await self._client.routes.ask_nameserver(
            requests.cluster_info(), "tell the cluster"
        )
        info = decode_cluster_info(reply.body)
        return [info.brokers[name] for name in sorted(info.brokers)]

    async def ask_each(
        self,
        command: Command,
        what: str,
        *,
        cluster: str = "",
        names: Collection[str] | None = None,
        topic: str = "",
        accepted: Collection[int] = _SUCCESS,
        attempt_s: float = ATTEMPT_TIMEOUT_S,
    ) -> Mapping[str, Command]:
        """Send a request to each group's leader; one of them may carry it out twice.

        Only groups of `cluster`, unless it is empty, and only those in `names`, unless it is None.
        `what`, the request in words ("make a topic"), and `topic` are for errors. Other response
        codes than `accepted` are refusals.

        Returns at least one reply, by the name of the group.

        Raises:
            ClientClosed, OtherLoop: see `Client.check_open`.
            NoMaster: there is no group, or a group had no leader for 10 s.
            NameServersUnreachable: no name server answers.
            RequestRefused: a broker refuses.

        The cause of such an error is the first one, if any, that leaves open whether the request
        was carried out.
        """
        deadline = trio.current_time() + ORDER_TIMEOUT_S
        replies: dict[str, Command] = {}
        failures = 0
        doubt: MessagingError | RemotingError | None = None
        while True:
            self._client.check_open()
            problem: MessagingError | RemotingError = NoMaster(topic, "")
            try:
                brokers = [
                    one
                    for one in await self.brokers()
                    if cluster in ("", one.cluster) and (names is None or one.broker_name in names)
                ]
                for broker in brokers:
                    if broker.broker_name not in replies:
                        replies[broker.broker_name] = await self._ask(
                            broker, command, what, topic, accepted, attempt_s
                        )
                if brokers:
                    return replies
            except RequestRefused as error:
                if error.code not in NOT_NOW_CODES:
                    raise error from doubt
                problem = error
            except NameServersUnreachable as error:
                raise error from doubt  # an election does not help
            except (MessagingError, RemotingError) as error:
                problem = error
            failures += 1
            if trio.current_time() >= deadline:
                raise problem from doubt
            if doubt is None and outcome_unknown(problem):
                doubt = problem
            await trio.sleep(pause_s(failures))

    async def _ask(
        self,
        broker: BrokerData,
        command: Command,
        what: str,
        topic: str,
        accepted: Collection[int],
        attempt_s: float,
    ) -> Command:
        if broker.leader is None:
            raise NoMaster(topic, broker.broker_name)
        reply = await self._client.remoting.request(broker.leader, command, attempt_s)
        if reply.code not in accepted:
            raise RequestRefused(broker.leader, what, reply.code, reply.remark)
        return reply
