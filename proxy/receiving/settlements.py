"""Answers AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

Source: RocketMQ's proxy, AckMessageActivity, ChangeInvisibleDurationActivity and
ForwardMessageToDLQActivity.
"""

import logging
from collections.abc import Sequence
from typing import Final

import trio

from dledger_mq.connection import requests
from proxy.brokers.brokers import Brokers
from proxy.caller import Caller
from proxy.names import group_name, topic_name
from proxy.receiving.receipt_handle import ReceiptHandle, read_handle
from proxy.receiving.renewals import Renewals
from proxy.statuses import OK, Refused, common
from proxy.wire.messages_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    AckMessageResultEntry,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.pop import MAX_INVISIBLE_MS
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# RocketMQ's clients acknowledge one message a call.
_MAX_ENTRIES: Final = 1024

# A broker takes no zero, and the client in JavaScript sends one for "now".
_LEAST_INVISIBLE_MS: Final = 1

# For how long a message is the client's while it is made a dead letter.
_BURYING_MS: Final = 60_000

# What a broker answers when a handle is no longer the message's: it was given again, or its topic
# or queue is gone.
_PASSED: Final = frozenset(
    {
        *(ResponseCode.NO_MESSAGE, ResponseCode.INVALID_PARAMETER),
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.MESSAGE_ILLEGAL),
    }
)

_ACCEPTED: Final = frozenset({ResponseCode.SUCCESS, *_PASSED})


class Settlements:
    def __init__(self, brokers: Brokers, renewals: Renewals) -> None:
        self._brokers = brokers
        self._renewals = renewals

    async def acknowledge(self, caller: Caller, request: AckMessageRequest) -> AckMessageResponse:
        """Acknowledge messages; each has its own status. Raises Refused."""
        group, topic = group_name(request.group), topic_name(request.topic)
        entries = request.entries
        if not 0 < len(entries) <= _MAX_ENTRIES:
            raise Refused(Code.BAD_REQUEST, f"{len(entries)} entries: send 1 to {_MAX_ENTRIES}")
        results: list[AckMessageResultEntry] = [
            AckMessageResultEntry(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=OK
            )
            for entry in entries
        ]

        async def settle(number: int, entry: AckMessageEntry) -> None:
            try:
                handle = read_handle(entry.receipt_handle)
                await self._acknowledge(caller, group, topic, handle)
            except Refused as refused:
                results[number].status.CopyFrom(refused.status)

        if len(entries) == 1:
            await settle(0, entries[0])
        else:
            async with trio.open_nursery() as nursery:
                for number, entry in enumerate(entries):
                    nursery.start_soon(settle, number, entry)
        status = common([result.status for result in results])
        return AckMessageResponse(status=status, entries=results)

    async def change(
        self, caller: Caller, request: ChangeInvisibleDurationRequest
    ) -> ChangeInvisibleDurationResponse:
        """Set when a message is visible again. Raises Refused (40011, 40013)."""
        group, topic = group_name(request.group), topic_name(request.topic)
        handle = read_handle(request.receipt_handle)
        invisible_ms = request.invisible_duration.ToMilliseconds()
        if not 0 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise Refused(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"invisible_duration {invisible_ms} ms: at most {MAX_INVISIBLE_MS} ms",
            )
        with self._renewals.settling(group, topic, handle) as newest:
            changed = await self._hide(
                caller,
                group,
                topic,
                newest,
                max(invisible_ms, _LEAST_INVISIBLE_MS),
                is_suspended=request.suspend,
            )
        return ChangeInvisibleDurationResponse(status=OK, receipt_handle=str(changed))

    async def forward(
        self, caller: Caller, request: ForwardMessageToDeadLetterQueueRequest
    ) -> ForwardMessageToDeadLetterQueueResponse:
        """Make a message a dead letter of its group. Raises Refused (40013): it is no handle.

        Clients repeat it until they are answered OK. So that is the answer, without a dead letter,
        if the message is no longer the client's: it became one before, another consumer has it, or
        its topic or broker is gone.
        """
        group, topic = group_name(request.group), topic_name(request.topic)
        handle = read_handle(request.receipt_handle)
        try:
            with self._renewals.settling(group, topic, handle) as newest:
                held = await self._hide(caller, group, topic, newest, _BURYING_MS)
                command = requests.send_back(
                    group,
                    handle.position,
                    origin_message_id=request.message_id[:255],
                    origin_topic=topic,
                    most_times=0,
                    delay_level=-1,
                )
                queue = _queue(topic, handle)
                await self._brokers.ask(caller, queue, command, "keep a dead letter")
                await self._acknowledge(caller, group, topic, held)
        except Refused as refused:
            if refused.code != Code.INVALID_RECEIPT_HANDLE:
                raise
            _log.info("no dead letter of topic %s is made: %s", quoted(topic), quoted(refused))
        return ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def drop(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Acknowledge a message that its client does not want; failures are logged."""
        try:
            await self._acknowledge(None, group, topic, handle)
        except Refused as refused:
            _log.info("a message with another tag is given again: %s", quoted(refused))

    async def give_back(
        self,
        group: str,
        topic: str,
        handles: Sequence[ReceiptHandle],
        taken: Sequence[ReceiptHandle],
        visible_ms: int,
    ) -> None:
        """Make messages visible soon that a client has not taken; failures are logged.

        No consumer has seen them, so this delivery is no attempt. It is one in a lite topic of
        which the client has taken others: with one that is suspended, brokers give all again.
        """
        partly_taken = {handle.lite_topic for handle in taken if handle.lite_topic}
        for handle in handles:
            newest = self._renewals.end(group, topic, handle)
            is_suspended = handle.lite_topic not in partly_taken
            try:
                await self._hide(None, group, topic, newest, visible_ms, is_suspended=is_suspended)
            except Refused as refused:
                _log.info("a message is visible after its invisible time: %s", quoted(refused))

    async def _check_broker(self, topic: str, handle: ReceiptHandle) -> None:
        """Raises Refused (40013): no such broker has the topic, or there is no such topic."""
        try:
            is_there = await self._brokers.has_broker(topic, handle.broker_name)
        except Refused as refused:
            if refused.code != Code.TOPIC_NOT_FOUND:
                raise
            is_there = False
        if not is_there:
            raise Refused(
                Code.INVALID_RECEIPT_HANDLE,
                f"broker {handle.broker_name!r:.80} has no queue of topic {topic}: receive anew",
            )

    async def _acknowledge(
        self, caller: Caller | None, group: str, topic: str, handle: ReceiptHandle
    ) -> None:
        """Raises Refused (40013)."""
        await self._check_broker(topic, handle)
        with self._renewals.settling(group, topic, handle) as newest:
            reply = await self._brokers.ask(
                caller,
                _queue(topic, handle),
                newest.request(RequestCode.ACK_MESSAGE, group, topic),
                "acknowledge a message",
                accepted=_ACCEPTED,
            )
            _check_held(reply)

    async def _hide(
        self,
        caller: Caller | None,
        group: str,
        topic: str,
        handle: ReceiptHandle,
        invisible_ms: int,
        *,
        is_suspended: bool = False,
    ) -> ReceiptHandle:
        """Raises Refused (40013)."""
        await self._check_broker(topic, handle)
        command = handle.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, group, topic)
        command.fields["invisibleTime"] = str(invisible_ms)
        if is_suspended:
            command.fields["suspend"] = "true"
        reply = await self._brokers.ask(
            caller,
            _queue(topic, handle),
            command,
            "change an invisible time",
            accepted=_ACCEPTED,
        )
        _check_held(reply)
        return handle.hidden(reply)


def _check_held(reply: Command) -> None:
    """Raises Refused (40013): then a client forgets the message."""
    if reply.code in _PASSED:
        raise Refused(
            Code.INVALID_RECEIPT_HANDLE,
            reply.remark or "the message was given again, or is no longer there",
        )


def _queue(topic: str, handle: ReceiptHandle) -> MessageQueue:
    return MessageQueue(topic, handle.broker_name, handle.queue_id)
