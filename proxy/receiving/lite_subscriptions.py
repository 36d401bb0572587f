"""Answers SyncLiteSubscription: which lite topics a client wants.

The leader of each broker keeps that in memory, not in its log: clients repeat it every 30 s. The
proxy also keeps the subscriptions of its clients, and sends them to a new leader before a client's
next receive, so that no client waits 30 s after an election.
Source: RocketMQ's proxy, LiteSubscriptionService.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import trio

from proxy.brokers.beside import Beside
from proxy.brokers.brokers import Brokers
from proxy.caller import Caller
from proxy.clients.sessions import Session, Sessions
from proxy.names import group_name, lite_topic_name, topic_name
from proxy.statuses import OK, Refused
from proxy.wire.messages_pb2 import (
    Code,
    LiteSubscriptionAction,
    NotifyUnsubscribeLiteCommand,
    OffsetOption,
    SyncLiteSubscriptionRequest,
    SyncLiteSubscriptionResponse,
    TelemetryCommand,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# In one request. A group's own limit, which brokers check, is 2000 for each client.
MAX_NAMED: Final = 10_000

# What all clients of a proxy want; each has some 150 bytes. Others are told when they repeat it.
MAX_KEPT: Final = 1_000_000

_CLEAR: Final = "COMPLETE_REMOVE"
_SET: Final = "COMPLETE_ADD"


@dataclass(slots=True, eq=False)
class _Wanted:
    """What a client wants of one parent topic.

    Attributes:
        names: the lite topics.
        version: of the client's last change.
        told: the leader of each broker that knows it.
    """

    group: str
    topic: str
    names: dict[str, None] = field(default_factory=dict)
    version: int = 0
    told: dict[str, str] = field(default_factory=dict)


class LiteSubscriptions:
    """What the clients of this proxy want.

    Args:
        brokers: told what clients want.
        sessions: knows which clients are there, and tells them what they lose.
        beside: where brokers are told that a client is gone.
    """

    def __init__(self, brokers: Brokers, sessions: Sessions, beside: Beside) -> None:
        self._brokers = brokers
        self._sessions = sessions
        self._beside = beside
        self._wanted: dict[str, _Wanted] = {}
        self._kept = 0
        sessions.on_end.append(self._client_gone)
        brokers.client.answer(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, self._lost)

    async def change(
        self, caller: Caller, request: SyncLiteSubscriptionRequest
    ) -> SyncLiteSubscriptionResponse:
        """Pass a change on to all brokers of a topic. Raises Refused (40020, 42901, 42902)."""
        group, topic = group_name(request.group), topic_name(request.topic)
        if len(request.lite_topic_set) > MAX_NAMED:
            raise Refused(
                Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"{len(request.lite_topic_set)} lite topics: at most {MAX_NAMED} in one request",
            )
        names = [lite_topic_name(name) for name in request.lite_topic_set]
        action = request.action
        if action not in LiteSubscriptionAction.values():
            raise Refused(Code.BAD_REQUEST, f"action {action} is unknown")
        session = self._sessions.heard(caller)
        word = LiteSubscriptionAction.Name(action)
        start = _start(request.offset_option) if request.HasField("offset_option") else None
        body = _body(word, caller.client_id, group, topic, names, request.version, start)
        addresses = await self._tell_all(caller, topic, body)
        if session.is_over:
            # It left meanwhile. Nothing would end what is noted of it from now on.
            self._tell_of_end(caller.client_id, group, topic, request.version)
            return SyncLiteSubscriptionResponse(status=OK)
        self._note(caller.client_id, group, topic, word, names, request.version, addresses)
        return SyncLiteSubscriptionResponse(status=OK)

    async def ensure(self, caller: Caller, topic: str, broker_name: str, address: str) -> None:
        """Have a leader know what a client wants, before the client asks it for messages.

        Raises Refused.
        """
        wanted = self._wanted.get(caller.client_id)
        if wanted is None or wanted.topic != topic or wanted.told.get(broker_name) == address:
            return
        body = _body(
            _SET,
            caller.client_id,
            wanted.group,
            topic,
            list(wanted.names),
            wanted.version,
            None,
        )
        await self._tell(caller, MessageQueue(topic, broker_name, 0), body)
        wanted.told[broker_name] = address

    def doubt(self, client_id: str, broker_name: str) -> None:
        """Have a leader told again what a client wants, before the client's next receive."""
        wanted = self._wanted.get(client_id)
        if wanted is not None:
            wanted.told.pop(broker_name, None)

    async def _tell_all(self, caller: Caller | None, topic: str, body: bytes) -> dict[str, str]:
        """Tell all brokers of a topic; return the leaders that certainly know it.

        Raises Refused, of any of them.
        """
        route = await self._brokers.route(topic)
        before = route.masters
        names = dict.fromkeys(queue.broker_name for queue in route.read_queues)
        problems: list[Refused] = []

        async def tell(broker_name: str) -> None:
            try:
                await self._tell(caller, MessageQueue(topic, broker_name, 0), body)
            except Refused as refused:
                problems.append(refused)

        async with trio.open_nursery() as nursery:
            for broker_name in names:
                nursery.start_soon(tell, broker_name)
        if problems:
            raise problems[0]
        known = self._brokers.client.routes.known(topic)
        if known is None:
            return {}
        # One that was elected meanwhile may not have been told: its predecessor was.
        return {name: at for name, at in known.masters.items() if before.get(name) == at}

    async def _tell(self, caller: Caller | None, queue: MessageQueue, body: bytes) -> None:
        command = Command(RequestCode.LITE_SUBSCRIPTION_CTL, body=body)
        await self._brokers.ask(caller, queue, command, "subscribe to lite topics")

    def _note(
        self,
        client_id: str,
        group: str,
        topic: str,
        action: str,
        names: Iterable[str],
        version: int,
        addresses: dict[str, str],
    ) -> None:
        wanted = self._wanted.get(client_id)
        if wanted is None or (wanted.group, wanted.topic) != (group, topic):
            self._forget(client_id)
            wanted = self._wanted[client_id] = _Wanted(group, topic, told=addresses)
        elif action == _SET and version < wanted.version:
            return  # brokers pass it over: a newer one came first
        if action in (_SET, _CLEAR):
            wanted.told = addresses
        else:
            # A leader that was elected since the last change knows this part alone.
            knew = wanted.told
            wanted.told = {name: at for name, at in addresses.items() if knew.get(name) == at}
        before = len(wanted.names)
        if action in (_SET, _CLEAR):
            wanted.names.clear()
        if action == "PARTIAL_REMOVE":
            for name in names:
                wanted.names.pop(name, None)
        elif action != _CLEAR:
            wanted.names.update(dict.fromkeys(names))
        wanted.version = max(wanted.version, version)
        self._kept += len(wanted.names) - before
        # One without names may be of a group that reads all lite topics.
        is_nothing = action == _CLEAR or not (wanted.names or action == _SET)
        if is_nothing or self._kept > MAX_KEPT:
            self._forget(client_id)

    def _forget(self, client_id: str) -> _Wanted | None:
        wanted = self._wanted.pop(client_id, None)
        if wanted is not None:
            self._kept -= len(wanted.names)
        return wanted

    def _client_gone(self, session: Session) -> None:
        wanted = self._forget(session.client_id)
        if wanted is not None:
            self._tell_of_end(session.client_id, wanted.group, wanted.topic, wanted.version)

    def _tell_of_end(self, client_id: str, group: str, topic: str, version: int) -> None:
        body = _body(_CLEAR, client_id, group, topic, [], version, None)
        self._beside.start_soon(self._clear, topic, body)

    async def _clear(self, topic: str, body: bytes) -> None:
        try:
            await self._tell_all(None, topic, body)
        except Refused as refused:
            # Brokers forget it after three minutes.
            _log.info("lite topics of a client that is gone: %s", quoted(refused))

    def _lost(self, _connection: Connection, command: Command) -> None:
        """Tell a client that another one has taken a lite topic over (200073)."""
        client_id = command.fields.get("clientId", "")
        name = command.fields.get("liteTopic", "")
        wanted = self._wanted.get(client_id)
        if wanted is not None and name in wanted.names:
            del wanted.names[name]
            self._kept -= 1
        session = self._sessions.find(client_id)
        if session is not None:
            told = NotifyUnsubscribeLiteCommand(lite_topic=name)
            session.tell(TelemetryCommand(notify_unsubscribe_lite_command=told))


def _start(option: OffsetOption) -> JsonValue:
    """Return where a group begins in lite topics that a client adds, as brokers read it."""
    kind = option.WhichOneof("offset_type")
    if kind is None:
        return None
    word = {"policy": "POLICY", "offset": "OFFSET", "tail_n": "TAIL_N"}.get(kind, "TIMESTAMP")
    value = getattr(option, kind)
    if value < 0:
        raise Refused(Code.BAD_REQUEST, f"offset_option {word} {value}: give 0 or more")
    return {"type": word, "value": value}


def _body(
    action: str,
    client_id: str,
    group: str,
    topic: str,
    names: list[str],
    version: int,
    start: JsonValue,
) -> bytes:
    one: dict[str, JsonValue] = {
        "action": action,
        "clientId": client_id,
        "group": group,
        "topic": topic,
        "liteTopicSet": list[JsonValue](names),
        "version": version,
    }
    if start is not None:
        one["offsetOption"] = start
    return compact_json({"subscriptionSet": [one]}).encode()
