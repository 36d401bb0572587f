"""The producer groups that this proxy is a member of, to be asked about transactions.

A producer group of these clients is the name of a topic. A broker asks any member of the group of a
half message; here that is this proxy, which passes the question to one of its clients that produces
for the topic.
"""

import logging
from typing import Final

from dledger_mq.connection.client import Client
from proxy.access import PUB, Access, topic_need
from proxy.brokers.topics import Topics
from proxy.caller import Caller
from proxy.clients.sessions import Session, Sessions
from proxy.clients.settings import Described
from proxy.messages.delivered_message import delivered
from proxy.sending.transaction_id import TransactionId
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import (
    ClientType,
    Code,
    MessageType,
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
)
from remoting.bodies.heartbeat import MAX_HEARTBEAT_GROUPS
from remoting.message.errors import MessageMalformed
from remoting.message.record import decode_record
from remoting.net.connection import Connection
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Questions that are being passed on. Brokers repeat the others.
_MOST_AT_ONCE: Final = 256

# Those of one heartbeat, in which all are named, and that of all proxies.
MAX_GROUPS: Final = MAX_HEARTBEAT_GROUPS - 1


class ProducerGroups:
    """The groups that this proxy is in.

    Args:
        client: its connections with brokers.
        topics: knows which topics take transactions.
        sessions: knows which clients can be asked.
        access: asked whether a client may see the message.
        nursery: where clients are asked.
    """

    def __init__(
        self,
        client: Client,
        topics: Topics,
        sessions: Sessions,
        access: Access,
        nursery: StartsTasks,
    ) -> None:
        self._client = client
        self._access = access
        self._nursery = nursery
        self._telling = 0  # questions that are being passed on
        self._topics = topics
        self._sessions = sessions
        self._joined: set[str] = set()

    async def expect(self, _caller: Caller, described: Described) -> None:
        """Join the groups of a producer's topics that take transactions: it may be a new one, and
        transactions of one that is gone may wait for it.
        """
        if described.kind != ClientType.PRODUCER:
            return
        for topic in sorted(described.topics):
            try:
                if MessageType.TRANSACTION in await self._topics.types(topic):
                    await self.join(topic)
            except Refused as refused:
                _log.info("transactions of %s: %s", quoted(topic), quoted(refused))

    async def join(self, topic: str) -> None:
        """Be asked about the transactions of a topic from now on.

        Brokers are told before the first half message is sent. Raises Refused (42900).
        """
        if topic in self._joined:
            return
        if len(self._joined) >= MAX_GROUPS:
            await self._leave_unused()
        if len(self._joined) >= MAX_GROUPS:
            raise Refused(
                Code.TOO_MANY_REQUESTS,
                f"clients have transactions in {MAX_GROUPS} topics here: use another proxy",
            )
        self._joined.add(topic)
        self._client.add_producer(topic, self._asked)
        await self._client.send_heartbeats()

    async def _leave_unused(self) -> None:
        """Leave the groups without a client, so that others have room."""
        for topic in list(self._joined):
            await self._leave_if_unused(topic)

    async def _leave_if_unused(self, topic: str) -> None:
        # Other calls leave groups meanwhile.
        if topic in self._joined and self._sessions.producer_of(topic) is None:
            self._joined.discard(topic)
            await self._client.remove_producer(topic, self._asked)

    def _asked(self, _connection: Connection, command: Command) -> None:
        """Pass a broker's question (39) to a client.

        Without one, this proxy leaves the group until it has one: the broker then asks another
        proxy, or counts no questions, of which it gives a transaction up after some.
        """
        try:
            record, _end = decode_record(command.body)
            topic = record.topic
            asked = RecoverOrphanedTransactionCommand(
                message=delivered(record, is_given=False),
                transaction_id=str(
                    TransactionId(
                        command.text("bname"),
                        command.integer("tranStateTableOffset"),
                        command.integer("commitLogOffset"),
                        command.fields.get("msgId", ""),
                    )
                ),
            )
        except (MessageMalformed, RemotingError) as error:
            _log.warning(
                "a broker's question about a transaction cannot be read: %s", quoted(error)
            )
            return
        session = self._sessions.producer_of(topic)
        if session is None:
            _log.info("no client produces for topic %s: the broker will ask again", quoted(topic))
            self._nursery.start_soon(self._leave_if_unused, topic)
        else:
            self._nursery.start_soon(self._tell, session, topic, asked)

    async def _tell(
        self, session: Session, topic: str, asked: RecoverOrphanedTransactionCommand
    ) -> None:
        """Ask a client that may still publish to the topic: the question has the message in it."""
        if self._telling >= _MOST_AT_ONCE:
            return
        self._telling += 1
        try:
            if session.caller is not None:
                await self._access.require(session.caller, topic, [topic_need(topic, PUB)])
                session.tell(TelemetryCommand(recover_orphaned_transaction_command=asked))
        except Refused as refused:
            _log.info("a transaction of topic %s: %s", quoted(topic), quoted(refused))
        finally:
            self._telling -= 1
