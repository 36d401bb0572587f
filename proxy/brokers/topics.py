"""Which types of messages a topic takes: its attribute `message.type` (RIP-46)."""

from typing import Final

from dledger_mq.connection import requests
from proxy.brokers.brokers import Brokers
from proxy.brokers.remembered import Remembered
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code, MessageType
from remoting.bodies.json_object import JsonObject
from remoting.bodies.topic_config import TopicConfig
from remoting.wire.codes import RequestCode
from remoting.wire.errors import BodyMalformed

MESSAGE_TYPE: Final = "message.type"

# A topic without the attribute takes normal messages; one with MIXED, those of RocketMQ 4.
_MIXED: Final = (
    MessageType.NORMAL,
    MessageType.FIFO,
    MessageType.DELAY,
    MessageType.TRANSACTION,
)
_TYPES: Final[dict[str, tuple[MessageType, ...]]] = {
    "MIXED": _MIXED,
    "NORMAL": (MessageType.NORMAL,),
    "FIFO": (MessageType.FIFO,),
    "DELAY": (MessageType.DELAY,),
    "TRANSACTION": (MessageType.TRANSACTION,),
    "LITE": (MessageType.LITE,),
    "PRIORITY": (MessageType.PRIORITY,),
}
_UNSET: Final = (MessageType.NORMAL,)


class Topics:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._types: Remembered[tuple[MessageType, ...]] = Remembered()

    async def types(self, topic: str) -> tuple[MessageType, ...]:
        """Return the types of messages that a topic takes. Raises Refused (40402, 50002)."""
        return await self._types.find(topic, lambda: self._ask(topic))

    async def _ask(self, topic: str) -> tuple[MessageType, ...]:
        asked = requests.command(RequestCode.GET_TOPIC_CONFIG, topic=topic)
        reply = await self._brokers.ask_any(None, topic, asked, "describe a topic")
        try:
            found = JsonObject.parse("topic", reply.body)
            config = TopicConfig.from_json(found, topic)
        except BodyMalformed as error:
            raise Refused(Code.INTERNAL_SERVER_ERROR, str(error)) from error
        return _TYPES.get(config.attributes.get(MESSAGE_TYPE, ""), _UNSET)
