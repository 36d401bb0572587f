"""Answers consumers that ask whether their condition can be served (46).

Source: RocketMQ's ClientManageProcessor. Its clients ask before they start, and only about SQL92.
"""

from typing import Final

from broker.filters.changes import SQL92
from broker.filters.condition import condition
from broker.serving.origin import Origin
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.json_object import JsonObject
from remoting.wire.command import Command

# A condition, a topic and a group, many times over.
MAX_BODY_BYTES: Final = 64 * 1024


class FilterProcessor:
    """Judges conditions."""

    def check(self, _origin: Origin, command: Command) -> Command:
        """Answer 0 if the condition can be served.

        Raises:
            BodyMalformed: the request cannot be read.
            RequestRefused (23): it cannot, and why.
        """
        body = JsonObject.parse("client configuration", command.body, MAX_BODY_BYTES)
        subscription = SubscriptionData.from_json(body.object("subscriptionData"))
        if subscription.expression_type == SQL92:
            condition(subscription.expression)
        return command.reply()
