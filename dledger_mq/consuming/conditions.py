"""Asks brokers whether they can filter by a consumer's conditions, before it starts."""

from collections.abc import Iterable
from typing import Final

from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master
from dledger_mq.connection.client import Client
from dledger_mq.consuming.subscription import SQL92
from dledger_mq.errors import InvalidCondition, MessagingError, RequestRefused
from remoting.bodies.heartbeat import SubscriptionData
from remoting.wire.codes import ResponseCode
from remoting.wire.errors import RemotingError

# A consumer starts without an answer if its topic does not exist yet, or no broker leads.
_TIMEOUT_S: Final = 3.0

_REFUSALS: Final = frozenset({ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SYSTEM_ERROR})


async def check_conditions(
    client: Client, group: str, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Check each condition if a broker of its topic can be asked now.

    Raises:
        InvalidCondition: a broker cannot filter by it.
    """
    for wanted in subscriptions:
        if wanted.expression_type != SQL92:
            continue
        try:
            route = await client.routes.find(wanted.topic)
            if not route.read_queues:
                continue
            command = requests.check_condition(client.client_id, group, wanted)
            await call_master(
                client,
                route.read_queues[0],
                command,
                "check a condition",
                timeout_s=_TIMEOUT_S,
            )
        except RequestRefused as refused:
            if refused.code in _REFUSALS:
                raise InvalidCondition(wanted.topic, refused.remark) from refused
        except (MessagingError, RemotingError):
            continue  # if the condition is wrong, its pulls are refused
