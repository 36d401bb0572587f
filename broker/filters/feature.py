"""SQL92 filters. Heartbeats bring them (`broker.consumers`), and pulls go by them."""

from typing import Final

from broker.filters.changes import FILTER_CHANGES, SQL92
from broker.filters.condition import condition, load_parser
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from dledger.waits.blocking_work import in_a_thread
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.json_object import JsonObject
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

# A condition, a topic and a group, many times over.
MAX_BODY_BYTES: Final = 64 * 1024


def check(_origin: Origin, command: Command) -> Command:
    """Answer 0 if a condition can be served (46).

    RocketMQ's clients ask before they start, and only about SQL92. Source: its
    ClientManageProcessor.

    Raises:
        BodyMalformed: the request cannot be read.
        RequestRefused (23): it cannot, and why.
    """
    body = JsonObject.parse("client configuration", command.body, MAX_BODY_BYTES)
    subscription = SubscriptionData.from_json(body.object("subscriptionData"))
    if subscription.expression_type == SQL92:
        condition(subscription.expression)
    return command.reply()


def service(parts: Parts) -> Service:
    """What serves clients."""
    return Service(
        handlers={RequestCode.CHECK_CLIENT_CONFIG: Handler(check, any_role=True)},
        begin_term=parts[FILTER_CHANGES].begin_term,
        tasks=(load_parser_early,),
    )


async def load_parser_early() -> None:
    """Load the parser in a thread: that takes a tenth of a second, which no client waits for."""
    await in_a_thread(load_parser)
