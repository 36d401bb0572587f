"""Asks brokers whether a client may be told what the proxy knows by itself.

A proxy with credentials asks on behalf of its clients: each request to a broker carries the
client's user and proof, and brokers judge it by that user's rights. Without credentials it knows no
users, and brokers with access control refuse all it asks.
"""

from collections.abc import Iterable
from typing import Final

from proxy.brokers.brokers import Brokers
from proxy.caller import Caller
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code
from remoting.bodies.access import AskedNeed, encode_needs
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

PUB: Final = ("Pub",)
SUB: Final = ("Sub",)
EITHER: Final = ("Pub", "Sub")


def topic_need(name: str, actions: tuple[str, ...]) -> AskedNeed:
    return AskedNeed("Topic", name, actions)


def group_need(name: str) -> AskedNeed:
    return AskedNeed("Group", name, SUB)


class Access:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    @property
    def is_on(self) -> bool:
        return self._brokers.is_user

    async def require_anywhere(self, caller: Caller, needs: Iterable[AskedNeed]) -> None:
        """Check a client in a call that names no topic. Raises Refused (40100).

        A proxy that was asked for no topic yet has nothing that is worth a check.
        """
        topic = self._brokers.some_topic
        if topic is None:
            return
        try:
            await self.require(caller, topic, needs)
        except Refused as refused:
            if refused.code != Code.TOPIC_NOT_FOUND:
                raise

    async def require(self, caller: Caller, topic: str, needs: Iterable[AskedNeed]) -> None:
        """Check that a client may do all of some things. Raises Refused (40100).

        Args:
            caller: the client.
            topic: one that exists: a broker that has it is asked.
            needs: of the call.
        """
        if self.is_on:
            asked = Command(RequestCode.CHECK_ACCESS, body=encode_needs(list(needs)))
            await self._brokers.ask_any(caller, topic, asked, "check what a client may do")
