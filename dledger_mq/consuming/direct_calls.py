"""Calls of a listener with one message that an administrator has chosen (309).

Nothing is committed or sent back: the message stays where it is. Source: RocketMQ's
ConsumeMessageConcurrentlyService.consumeMessageDirectly.
"""

import logging
from collections.abc import Callable
from typing import Final

import trio

from dledger.declared_error import DeclaredError
from dledger_mq.consuming.listener_calls import ListenerCalls
from dledger_mq.received_message import ReceivedMessage, received
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.message.record import decode_record
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

_log = logging.getLogger(__name__)

# Administrators ask for one at a time. Calls must not pile up behind a listener that hangs.
MAX_CALLS: Final = 16

# The longest text of an error in the answer.
_REMARK_CHARACTERS: Final = 300


class DirectCalls:
    """Runs a listener for administrators, beside its other calls, and not in the order of the
    queue.
    """

    def __init__(self, calls: ListenerCalls, *, is_ordered: bool) -> None:
        self._calls = calls
        self._is_ordered = is_ordered
        self._nursery: StartsTasks | None = None
        self._running = 0

    def begin(self, nursery: StartsTasks) -> None:
        """Run calls in `nursery` from now on: the consumer has started."""
        self._nursery = nursery

    def asked(self, command: Command, send: Callable[[Command], None]) -> None:
        """Call the listener with the message in a broker's request, then answer."""
        try:
            if self._nursery is None:
                raise _Refused("the consumer is starting")
            if self._calls.listener is None:
                raise _Refused(f"group {self._calls.group} consumes in a loop, not by a listener")
            if self._running >= MAX_CALLS:
                raise _Refused(f"{MAX_CALLS} such calls run already")
            record, _end = decode_record(command.body)
            queue = MessageQueue(
                record.topic, command.fields.get("brokerName", ""), record.queue_id
            )
            message = received(record, queue)
        except (_Refused, MessageMalformed) as error:
            send(command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error)))
            return
        self._running += 1
        self._nursery.start_soon(self._call, message, command, send)

    async def _call(
        self, message: ReceivedMessage, command: Command, send: Callable[[Command], None]
    ) -> None:
        began = trio.current_time()
        result, remark = "CR_LATER", None
        try:
            if await self._calls.call([message], began):
                result = "CR_SUCCESS"
        except Exception as error:
            _log.exception("the listener of group %s failed, for an operator", self._calls.group)
            result, remark = "CR_THROW_EXCEPTION", repr(error)[:_REMARK_CHARACTERS]
        finally:
            self._running -= 1
        body = {
            "autoCommit": True,
            "consumeResult": result,
            "order": self._is_ordered,
            "remark": remark,
            "spentTimeMills": round((trio.current_time() - began) * 1000),
        }
        send(command.reply(body=compact_json(body).encode()))


class _Refused(DeclaredError):
    problem: str
