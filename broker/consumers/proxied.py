"""The answers of proxies about the members of a group, added to what the broker knows (203)."""

from collections.abc import Iterable
from typing import Final

from remoting.bodies.heartbeat import ConsumeType, SubscriptionData
from remoting.bodies.json_object import JsonObject
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed, RemotingError
from remoting.wire.loose_json import LARGE, JsonValue, compact_json

# What a proxy tells of its consumers has at most half of it.
_MAX_BODY_BYTES: Final = 1024 * 1024

# Members and topics of one proxy that an answer shows. A proxy tells no more.
MAX_TOLD: Final = 1000


class ProxiedMembers:
    """The members of a group that came through proxies.

    Attributes:
        connections: one JSON object for each.
        subscriptions: by topic.
        consume_type: of one of them.
    """

    def __init__(self, outcomes: Iterable[Command | RemotingError]) -> None:
        self.connections: list[str] = []
        self.subscriptions: dict[str, JsonValue] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        for outcome in outcomes:
            # Proxies without such members refuse; others may be gone.
            if not isinstance(outcome, RemotingError) and outcome.code == ResponseCode.SUCCESS:
                try:
                    self._add(JsonObject.parse("members", outcome.body, _MAX_BODY_BYTES, LARGE))
                except BodyMalformed:
                    continue

    def _add(self, told: JsonObject) -> None:
        """Raises BodyMalformed."""
        for one in told.objects("connectionSet", MAX_TOLD):
            connection: dict[str, JsonValue] = {
                "clientAddr": one.text("clientAddr", ""),
                "clientId": one.text("clientId"),
                "language": one.text("language", "OTHER"),
                "version": one.int32("version", 0),
            }
            self.connections.append(compact_json(connection))
        if told.text("consumeType", "") == ConsumeType.CONSUME_ACTIVELY.name:
            self.consume_type = ConsumeType.CONSUME_ACTIVELY
        for subscription in told.objects("subscriptions", MAX_TOLD):
            data = SubscriptionData.from_json(subscription)
            self.subscriptions[data.topic] = data.to_json()
