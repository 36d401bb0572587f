"""SQL92 filters. Heartbeats bring them (`broker.consumers`), and pulls use them."""

from typing import Final

from broker.filters.changes import FILTER_CHANGES, SQL92
from broker.filters.condition import condition, load_parser
from broker.serving.needs import any_user
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from dledger.waits.blocking_work import in_a_thread
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.json_object import JsonObject
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

# Room for many times a condition, a topic and a group.
MAX_BODY_BYTES: Final = 64 * 1024


def check(_origin: Origin, command: Command) -> Command:
    """Answer whether a condition can be served (46).

    RocketMQ's clients ask before they start, and only about SQL92. Source: its
    ClientManageProcessor.

    Raises RequestRefused (23): the condition is wrong.
    """
    body = JsonObject.parse("client configuration", command.body, MAX_BODY_BYTES)
    subscription = SubscriptionData.from_json(body.object("subscriptionData"))
    if subscription.expression_type == SQL92:
        condition(subscription.expression)
    return command.reply()


def service(parts: Parts) -> Service:
    return Service(
        handlers={RequestCode.CHECK_CLIENT_CONFIG: Handler(check, any_user, any_role=True)},
        begin_term=parts[FILTER_CHANGES].begin_term,
        tasks=(load_parser_early,),
    )


async def load_parser_early() -> None:
    """Load the parser in a thread: it takes a tenth of a second, for which no client
    should wait.
    """
    await in_a_thread(load_parser)
