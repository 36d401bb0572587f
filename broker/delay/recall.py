"""Answers recalls of delayed messages (370)."""

from collections.abc import Generator
from typing import Final

from broker.delay.commands import DropDelayed
from broker.delay.deliveries import DELIVERIES
from broker.delay.state import DELAYS
from broker.delay.waiting_table import Waiting
from broker.errors import EntryPassedOver, RequestRefused
from broker.log.submissions import submit_commands
from broker.messages.record_facts import properties_run, read_without_body
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from remoting.bodies.pieces import pieces
from remoting.message.properties import REAL_TOPIC, UNIQUE_KEY, found_value, shown_value
from remoting.message.recall_handle import RecallHandle, read_recall_handle
from remoting.net.answering import Steps
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# Messages due in one millisecond that are searched, in some milliseconds, for one whose handle has
# no position, or that retention has moved.
_MAX_LOOKED_AT: Final = 500

_TOPIC: Final = REAL_TOPIC.encode()
_KEY: Final = UNIQUE_KEY.encode()


class RecallProcessor:
    def __init__(self, parts: Parts) -> None:
        self._delays = parts.state[DELAYS]
        self._log = parts.log
        self._deliveries = parts[DELIVERIES]
        self._broker_name = parts.config.group

    def recall(self, origin: Origin, command: Command) -> Steps:
        """Drop a delayed message, or answer that it is too late.

        Raises RequestRefused: (29) the handle is not of this broker, (604) no such message waits.
        """
        topic = command.name("topic")
        text = command.text("recallHandle")
        handle = read_recall_handle(text)
        if handle is None:
            raise RequestRefused.invalid(
                f"recall handle {text!r:.80}: give the one that the broker answered the send with"
            )
        if (handle.topic, handle.broker_name) != (topic, self._broker_name):
            raise RequestRefused.invalid(
                f"recall failed: the handle is of topic {handle.topic!r:.80} at broker "
                f"{handle.broker_name!r:.80}"
            )
        found = yield from self._found(handle)
        claimed = None if found is None else self._deliveries.claim(found.position)
        if found is None or claimed is None:
            raise _too_late(handle)

        reply = replying(
            origin, command, lambda: command.reply(fields={"msgId": handle.unique_key})
        )

        def then(refusal: RequestRefused | None) -> None:
            claimed(None)
            reply(_too_late(handle) if isinstance(refusal, EntryPassedOver) else refusal)

        submit_commands(self._log, [DropDelayed(found.position)], then)
        return None

    def _found(self, handle: RecallHandle) -> Generator[None, None, Waiting | None]:
        there = None
        if handle.position is not None:
            there = self._delays.waiting.get(handle.position)
        if there is not None and self._is_it(there, handle):
            return there
        for piece in pieces(self._delays.waiting.due_at(handle.due_ms, _MAX_LOOKED_AT), 16):
            yield
            for other in piece:
                if self._is_it(other, handle):
                    return other
        return None

    def _is_it(self, waiting: Waiting, handle: RecallHandle) -> bool:
        if waiting.position < self._log.begin_position:
            return False
        record = read_without_body(self._log.read_bytes, waiting.position, waiting.size)
        run = b"" if record is None else properties_run(record)
        return (found_value(run, _TOPIC), shown_value(found_value(run, _KEY) or "")) == (
            handle.topic,
            handle.unique_key,
        )


def _too_late(handle: RecallHandle) -> RequestRefused:
    return RequestRefused(
        ResponseCode.ILLEGAL_OPERATION,
        f"recall failed: message {handle.unique_key:.80} does not wait any more, it was delivered "
        "or recalled",
    )
