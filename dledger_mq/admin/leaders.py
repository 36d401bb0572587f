"""Asks the leaders of all groups of brokers, through elections."""

from collections.abc import Collection, Mapping
from typing import Final

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.calls import ATTEMPT_TIMEOUT_S, NOT_NOW_CODES, pause_s
from dledger_mq.connection.client import Client
from dledger_mq.errors import MessagingError, NameServersUnreachable, NoMaster, RequestRefused
from remoting.bodies.route import BrokerData, decode_cluster_info
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# How long orders and questions follow an election.
ORDER_TIMEOUT_S: Final = 10.0

_SUCCESS: Final = frozenset({ResponseCode.SUCCESS})


class Leaders:
    """The groups of brokers that the name servers know.

    Args:
        client: whose connections and routes to use.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def brokers(self) -> list[BrokerData]:
        """The groups of brokers, by name."""
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
        """Have each group's leader carry out a command, which it may do twice.

        Args:
            command: the request.
            what: what is asked for, for errors: "make a topic".
            cluster: only groups of this cluster; of all when empty.
            names: only these groups.
            topic: what it is about, for errors.
            accepted: codes that are an answer; others are refusals.
            attempt_s: how long one broker may take.

        Returns:
            The replies by the names of the groups.

        Raises:
            ClientClosed, OtherLoop: see `Client.check_open`.
            NoMaster: there is no group, or one has no leader for the whole time.
            NameServersUnreachable: none answers.
            RequestRefused: a broker says no.
        """
        deadline = trio.current_time() + ORDER_TIMEOUT_S
        replies: dict[str, Command] = {}
        failures = 0
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
                    raise
                problem = error
            except NameServersUnreachable:
                raise  # no election brings one back
            except (MessagingError, RemotingError) as error:
                problem = error
            failures += 1
            if trio.current_time() >= deadline:
                raise problem
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
