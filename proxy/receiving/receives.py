"""Answers ReceiveMessage: asks a broker for messages, and waits there until some come.

Source: RocketMQ's proxy, ReceiveMessageActivity.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, NamedTuple
from uuid import uuid4

import trio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from dledger_mq.connection import requests
from dledger_mq.connection.calls import NOT_NOW_CODES, master_of, pause_s
from dledger_mq.connection.this_process import now_ms
from dledger_mq.errors import MessagingError, NameServersUnreachable, NoMaster, RequestRefused
from dledger_mq.popping import pop_requests
from dledger_mq.popping.popped import POP_CODES, first_offsets
from proxy.brokers.brokers import Brokers
from proxy.brokers.groups import Groups
from proxy.brokers.topics import Topics
from proxy.caller import Caller
from proxy.http2.errors import GrpcStatus
from proxy.http2.status import Status as GrpcCode
from proxy.messages.delivered_message import delivered
from proxy.names import group_name, topic_name
from proxy.receiving.held_pops import HeldPops
from proxy.receiving.lite_subscriptions import LiteSubscriptions
from proxy.receiving.receipt_handle import ReceiptHandle
from proxy.receiving.renewals import Renewals
from proxy.receiving.settlements import Settlements
from proxy.receiving.subscription import is_wanted, wanted_of
from proxy.statuses import OK, Refused, refused_by
from proxy.wire.messages_pb2 import (
    Code,
    Message,
    MessageType,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
)
from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.pop import MAX_INVISIBLE_MS
from remoting.message.errors import CompressionMissing, MessageMalformed
from remoting.message.properties import LITE_TOPIC, found_value
from remoting.message.record import MessageRecord, decode_records
from remoting.message.topic_names import RETRY_PREFIX
from remoting.net.host_shares import HostShares
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.field_values import is_name
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Of messages that the proxy renews for a client: RocketMQ's.
RENEWED_INVISIBLE_S: Final = 60.0

_LEAST_INVISIBLE_S: Final = 10

_LONGEST_WAIT_S: Final = 20.0
_LEAST_WAIT_S: Final = 5.0

# What is left of a client's time for the way of an answer.
_WAY_BACK_S: Final = 0.3

_MAX_BATCH: Final = 32
_MAX_ATTEMPT_CHARACTERS: Final = 64

# One that waits for a shorter time has a pop of its own: it asks what is there now.
_LEAST_SHARED_S: Final = 1.0

# A pop that finds nothing is answered so early only if the broker has given it up.
_EARLY_S: Final = 1.0

# What is left of an answer that its client did not take is visible after this time.
_GIVEN_BACK_MS: Final = 1000

# Messages that clients have asked for and not taken yet, of all clients. An answer has 256 KiB, or
# one message.
MAX_HELD_BYTES: Final = 256 * 1024 * 1024

# A receive whose messages came so long ago ends if there is no room for those of others.
_SLOW_S: Final = 30.0

_ANY_QUEUE: Final = -1
_LITE_TOPIC: Final = LITE_TOPIC.encode()

_NOTHING: Final = Refused(Code.MESSAGE_NOT_FOUND, "no message came in time").status

Sends = Callable[[ReceiveMessageResponse], Awaitable[None]]


class _Asked(NamedTuple):
    """A checked receive."""

    group: str
    topic: str
    broker_name: str
    wanted: SubscriptionData
    most: int
    invisible_ms: int
    auto_renew: bool
    wait_s: float
    attempt_id: str

    @property
    def alike(self) -> tuple[str, str, str, int, int]:
        """Equal for receives of a topic and broker that can take each other's messages."""
        kind, text = self.wanted.expression_type, self.wanted.expression
        return self.group, kind, text, self.most, self.invisible_ms


class _Given(NamedTuple):
    """A message that is this client's for a time."""

    record: MessageRecord
    handle: ReceiptHandle


_Reads = Callable[[Command], list[_Given]]


class Receives:
    """Answers consumers.

    Args:
        brokers: asked for messages.
        groups: knows which groups consume in order.
        topics: knows which topics have lite topics.
        lite: knows which lite topics clients want.
        renewals: keeps messages invisible for clients that ask for that.
        settlements: gives back what a client has not taken.
        nursery: where messages are given back after a call has ended.
    """

    def __init__(
        self,
        brokers: Brokers,
        groups: Groups,
        topics: Topics,
        lite: LiteSubscriptions,
        renewals: Renewals,
        settlements: Settlements,
        nursery: StartsTasks,
    ) -> None:
        self._topics = topics
        self._lite = lite
        self._pops = HeldPops(brokers.client)
        self._held = HostShares(MAX_HELD_BYTES)  # of messages that are on their way to clients
        # Receives whose messages are on their way, and since when; the oldest first.
        self._sending: dict[trio.CancelScope, float] = {}
        self._brokers = brokers
        self._groups = groups
        self._renewals = renewals
        self._settlements = settlements
        self._nursery = nursery

    async def run(self) -> None:
        """End waits that are over, until cancelled."""
        await self._pops.run()

    async def receive(self, caller: Caller, request: ReceiveMessageRequest, send: Sends) -> None:
        """Send a status, messages, and the time of their delivery."""
        given: list[_Given] = []
        asked: _Asked | None = None
        try:
            asked = _read(caller, request)
            del request  # it may be large, and the wait is long
            given = await self._messages(caller, asked)
            self._check_room(caller, asked, given)
            status = OK
            if not given:
                status = _NOTHING
        except Refused as refused:
            status, given = refused.status, []
        if asked is None or not given:
            await send(ReceiveMessageResponse(status=status))
            await send(_now())
            return
        held_bytes = _size(given)
        self._held.take(caller.host, held_bytes)
        with trio.CancelScope() as scope:
            self._sending[scope] = trio.current_time()
            try:
                await self._send_all(caller, asked, given, send)
            finally:
                del self._sending[scope]
                self._held.give_back(caller.host, held_bytes)
        if scope.cancelled_caught:
            raise GrpcStatus(GrpcCode.RESOURCE_EXHAUSTED, "its messages were taken too slowly")

    def _check_room(self, caller: Caller, asked: _Asked, given: list[_Given]) -> None:
        """Give messages back if clients leave too many untaken. Raises Refused (42900).

        Then the slowest receives end: a client that takes a little again and again could keep all
        others from receiving.
        """
        if given and not self._held.has_room(caller.host, _size(given)):
            slow_before = trio.current_time() - _SLOW_S
            for scope, began in self._sending.items():
                if began < slow_before:
                    scope.cancel()
            self._give_back(asked, given)
            raise Refused(
                Code.TOO_MANY_REQUESTS,
                f"clients have not taken {self._held.taken} bytes of messages, and those of this "
                f"host {self._held.of(caller.host)}: receive later",
            )

    async def _send_all(
        self, caller: Caller, asked: _Asked, given: list[_Given], send: Sends
    ) -> None:
        """Send messages; what the client does not take is soon visible again."""
        taken = 0
        try:
            await send(ReceiveMessageResponse(status=OK))
            for one in given:
                message = await self._converted(asked, one)
                if message is not None:
                    if asked.auto_renew:
                        self._renewals.add(caller, asked.group, asked.topic, one.handle)
                    await send(ReceiveMessageResponse(message=message))
                taken += 1
            await send(_now())
        finally:
            if taken < len(given):
                self._give_back(asked, given[taken:], given[:taken])

    async def _converted(self, asked: _Asked, one: _Given) -> Message | None:
        """Return a message for the client; None if it cannot be read, or is not wanted."""
        if not is_wanted(asked.wanted, one.record):
            self._nursery.start_soon(self._settlements.drop, asked.group, asked.topic, one.handle)
            return None
        try:
            message = delivered(one.record)
        except (MessageMalformed, CompressionMissing) as error:
            # It comes again after its invisible time, and becomes a dead letter.
            _log.error(
                "a message of topic %s cannot be read: %s", quoted(asked.topic), quoted(error)
            )
            return None
        system = message.system_properties
        system.receipt_handle = str(one.handle)
        system.invisible_duration.FromMilliseconds(asked.invisible_ms)
        return message

    async def _messages(self, caller: Caller, asked: _Asked) -> list[_Given]:
        """Ask until messages come, or the time to wait is over. Raises Refused."""
        if not await self._brokers.may_read(asked.topic, asked.broker_name):
            raise Refused(
                Code.BAD_REQUEST,
                f"broker {asked.broker_name!r:.80} has no queue of topic {asked.topic} that may be "
                "read",
            )
        is_lite = MessageType.LITE in await self._topics.types(asked.topic)
        in_order = is_lite or (await self._groups.rules(asked.group, asked.topic)).in_order
        attempt_id = (asked.attempt_id or uuid4().hex) if in_order else ""
        until = trio.current_time() + asked.wait_s
        queue = MessageQueue(asked.topic, asked.broker_name, _ANY_QUEUE)
        first_queue = MessageQueue(asked.topic, asked.broker_name, 0)
        # Brokers check for whom each request is: then every receive has a pop of its own.
        is_shared = not (in_order or self._brokers.is_user)
        alike = asked.alike if is_shared else None

        def make(wait_s: float) -> Command:
            command = _command(caller, asked, wait_s, attempt_id, is_lite=is_lite)
            self._brokers.speak_for(caller, command)
            return command

        read = partial(_read_reply, asked, is_lite=is_lite)
        give_back = partial(self._give_back_reply, asked, read)
        failures = 0
        while True:
            left_s = max(until - trio.current_time(), 0.0)
            problem: MessagingError | RemotingError
            try:
                address = await master_of(self._brokers.client, queue, refresh=failures > 0)
                if is_lite:
                    await self._lite.ensure(caller, asked.topic, asked.broker_name, address)
                reply = await self._pops.ask(
                    address,
                    first_queue,
                    alike if left_s >= _LEAST_SHARED_S else None,
                    caller.host,
                    make,
                    left_s,
                    give_back,
                )
                if reply is None:
                    if trio.current_time() >= until:
                        return []
                    continue  # another broker leads
            except (RemotingError, NoMaster, NameServersUnreachable) as error:
                problem = error
            except MessagingError as error:
                raise refused_by(error) from error
            else:
                if reply.code == ResponseCode.POLLING_FULL:
                    raise Refused(Code.TOO_MANY_REQUESTS, "too many receives wait at the broker")
                is_early = until - trio.current_time() > _EARLY_S
                if is_lite and is_early and reply.code == ResponseCode.POLLING_TIMEOUT:
                    # Its term has ended, or it has heard nothing of this client for long.
                    self._lite.doubt(caller.client_id, asked.broker_name)
                if reply.code in POP_CODES:
                    return read(reply) if reply.code == ResponseCode.SUCCESS else []
                if reply.code not in NOT_NOW_CODES:
                    raise refused_by(_refusal(address, reply))
                problem = _refusal(address, reply)
            failures += 1
            pause = pause_s(failures)
            if trio.current_time() + pause >= until:
                # An election: the client asks again, and finds the new leader.
                await trio.sleep(min(pause, max(until - trio.current_time(), 0.0)))
                _log.info("no messages of %s: %s", quoted(asked.topic), quoted(problem))
                return []
            await trio.sleep(pause)

    def _give_back_reply(self, asked: _Asked, read: _Reads, reply: Command) -> None:
        try:
            given = read(reply)
        except Refused as refused:
            _log.warning("messages that no client takes: %s", quoted(refused))
            return
        self._give_back(asked, given)

    def _give_back(
        self, asked: _Asked, given: Iterable[_Given], taken: Iterable[_Given] = ()
    ) -> None:
        handles = [one.handle for one in given]
        with_them = [one.handle for one in taken]
        give = partial(self._settlements.give_back, asked.group, asked.topic, handles, with_them)
        self._nursery.start_soon(give, _GIVEN_BACK_MS)


def _command(
    caller: Caller, asked: _Asked, wait_s: float, attempt_id: str, *, is_lite: bool
) -> Command:
    """Return the request to a broker: of a client's lite topics, or of a queue."""
    hold_ms = round(wait_s * 1000)
    if is_lite:
        return requests.command(
            RequestCode.POP_LITE_MESSAGE,
            clientId=caller.client_id,
            consumerGroup=asked.group,
            topic=asked.topic,
            maxMsgNum=asked.most,
            invisibleTime=asked.invisible_ms,
            pollTime=hold_ms,
            bornTime=now_ms(),
            attemptId=attempt_id,
        )
    return pop_requests.pop(
        asked.group,
        MessageQueue(asked.topic, asked.broker_name, _ANY_QUEUE),
        asked.wanted,
        most=asked.most,
        invisible_ms=asked.invisible_ms,
        hold_ms=hold_ms,
        now_ms=now_ms(),
        from_first=False,
        attempt_id=attempt_id,
    )


def _read(caller: Caller, request: ReceiveMessageRequest) -> _Asked:
    """Check a receive. Raises Refused."""
    group = group_name(request.group)
    topic = topic_name(request.message_queue.topic)
    broker_name: str = request.message_queue.broker.name
    if not is_name(broker_name):
        raise Refused(Code.BAD_REQUEST, f"message_queue names no broker: {broker_name!r:.80}")
    wait_s = _wait_s(caller, request)
    invisible_ms = round(RENEWED_INVISIBLE_S * 1000)
    if not request.auto_renew:
        invisible_ms = _milliseconds(request.invisible_duration)
        if not _LEAST_INVISIBLE_S * 1000 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise Refused(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"invisible_duration {invisible_ms} ms: {_LEAST_INVISIBLE_S} to "
                f"{MAX_INVISIBLE_MS // 1000} s",
            )
    attempt_id: str = request.attempt_id
    if len(attempt_id) > _MAX_ATTEMPT_CHARACTERS or not attempt_id.isprintable():
        raise Refused(Code.BAD_REQUEST, f"attempt_id of {len(attempt_id)} characters: at most 64")
    if request.batch_size < 1:
        raise Refused(Code.BAD_REQUEST, f"batch_size {request.batch_size}: ask for 1 or more")
    return _Asked(
        group,
        topic,
        broker_name,
        wanted_of(topic, request.filter_expression),
        min(request.batch_size, _MAX_BATCH),
        invisible_ms,
        request.auto_renew,
        wait_s,
        attempt_id,
    )


def _wait_s(caller: Caller, request: ReceiveMessageRequest) -> float:
    """Return how long to wait for messages. Raises Refused (40018)."""
    left_s = _LONGEST_WAIT_S + _WAY_BACK_S
    if caller.deadline_s is not None:
        left_s = caller.deadline_s - trio.current_time()
    most_s = left_s - _WAY_BACK_S
    wait_s = _LONGEST_WAIT_S
    if request.HasField("long_polling_timeout"):
        wait_s = min(max(_milliseconds(request.long_polling_timeout) / 1000, 0.0), wait_s)
    if wait_s > most_s and left_s < _LEAST_WAIT_S:
        raise Refused(
            Code.ILLEGAL_POLLING_TIME,
            f"the call's deadline is in {max(left_s, 0.0):.1f} s, before the end of its wait of "
            f"{wait_s:g} s",
        )
    return min(wait_s, most_s)


def _milliseconds(duration: Duration) -> int:
    """Return what `ToMilliseconds` does, in a third of its time."""
    milliseconds: int = duration.seconds * 1000 + math.trunc(duration.nanos / 1_000_000)
    return milliseconds


def _read_reply(asked: _Asked, reply: Command, *, is_lite: bool) -> list[_Given]:
    """Read the messages that a broker gives. Raises Refused.

    Messages of ordinary topics may have the property of a lite topic, too: it means nothing there.
    """
    try:
        popped_ms, invisible_ms = reply.integer("popTime"), reply.integer("invisibleTime")
        revive = reply.integer("reviveQid", 0)
        records = decode_records(reply.body)
        firsts = first_offsets(reply.fields.get("startOffsetInfo", ""))
    except (RemotingError, MessageMalformed) as error:
        raise Refused(Code.INTERNAL_SERVER_ERROR, f"a broker's answer: {error}") from error
    given: list[_Given] = []
    for record in records:
        is_retry = record.topic.startswith(RETRY_PREFIX)
        kinds = ("1", "2") if is_retry else ("0",)
        kind = next((one for one in kinds if (one, record.queue_id) in firsts), kinds[0])
        first = firsts.get((kind, record.queue_id), record.queue_offset)
        handle = ReceiptHandle(
            first,
            popped_ms,
            invisible_ms,
            revive,
            kind,
            asked.broker_name,
            record.queue_id,
            record.queue_offset,
            record.physical_offset,
            (found_value(record.properties, _LITE_TOPIC) or "") if is_lite else "",
        )
        given.append(_Given(record, handle))
    return given


def _size(given: Iterable[_Given]) -> int:
    return sum(len(one.record.body) + len(one.record.properties) for one in given)


def _refusal(address: str, reply: Command) -> RequestRefused:
    return RequestRefused(address, "give messages", reply.code, reply.remark)


def _now() -> ReceiveMessageResponse:
    seconds, milliseconds = divmod(now_ms(), 1000)  # the library's own way takes 8 us
    now = Timestamp(seconds=seconds, nanos=milliseconds * 1_000_000)
    return ReceiveMessageResponse(delivery_timestamp=now)
