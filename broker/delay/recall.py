"""Answers recalls of delayed messages (370)."""

from typing import Final

from broker.delay.commands import DropDelayed
from broker.delay.deliveries import Deliveries
from broker.delay.recall_handle import RecallHandle, read_recall_handle
from broker.delay.state import DELAYS
from broker.delay.waiting_table import Waiting
from broker.errors import EntryPassedOver, RequestRefused
from broker.log.replicated_log import Log
from broker.log.state import BrokerState
from broker.log.submissions import submit_commands
from broker.serving.origin import Origin
from remoting.message.properties import REAL_TOPIC, UNIQUE_KEY, shown_value
from remoting.message.record import decode_record
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# Messages of one millisecond that are looked at for one whose handle does not say where it is, or
# that retention has moved: some milliseconds of the event loop.
_MAX_LOOKED_AT: Final = 500


class RecallProcessor:
    """Takes back messages that were not delivered yet.

    Args:
        state, log, deliveries, broker_name: what it works with.
    """

    def __init__(
        self, state: BrokerState, log: Log, deliveries: Deliveries, broker_name: str
    ) -> None:
        self._delays = state[DELAYS]
        self._log = log
        self._deliveries = deliveries
        self._broker_name = broker_name

    def recall(self, origin: Origin, command: Command) -> None:
        """Drop a delayed message, once and for all; or say that it is too late.

        Raises:
            FieldMissing: a field it must have is missing.
            RequestRefused: (29) the handle is none of this broker's, (604) no such message waits.
        """
        topic = command.name("topic")
        handle = read_recall_handle(command.text("recallHandle"))
        if (handle.topic, handle.broker_name) != (topic, self._broker_name):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"recall failed: the handle is of topic {handle.topic!r:.80} at broker "
                f"{handle.broker_name!r:.80}",
            )
        found = self._found(handle)
        claimed = None if found is None else self._deliveries.claim(found.position)
        if found is None or claimed is None:
            raise _too_late(handle)

        def then(refusal: RequestRefused | None) -> None:
            claimed(None)
            if isinstance(refusal, EntryPassedOver):
                refusal = _too_late(handle)
            if refusal is not None:
                origin.send(command.reply(refusal.code, remark=refusal.remark))
            else:
                origin.send(command.reply(ResponseCode.SUCCESS, {"msgId": handle.unique_key}))

        submit_commands(self._log, [DropDelayed(found.position)], then)

    def _found(self, handle: RecallHandle) -> Waiting | None:
        """The message of a handle, if it waits."""
        there = None
        if handle.position is not None:
            there = self._delays.waiting.get(handle.position)
        if there is not None and self._is_it(there, handle):
            return there
        for other in self._delays.waiting.due_at(handle.due_ms, _MAX_LOOKED_AT):
            if self._is_it(other, handle):
                return other
        return None

    def _is_it(self, waiting: Waiting, handle: RecallHandle) -> bool:
        if waiting.position < self._log.begin_position:
            return False
        record, _end = decode_record(self._log.read_bytes(waiting.position, waiting.size))
        pairs = record.property_map()
        return (pairs.get(REAL_TOPIC), shown_value(pairs.get(UNIQUE_KEY, ""))) == (
            handle.topic,
            handle.unique_key,
        )


def _too_late(handle: RecallHandle) -> RequestRefused:
    return RequestRefused(
        ResponseCode.ILLEGAL_OPERATION,
        f"recall failed: message {handle.unique_key:.80} does not wait any more, it was delivered "
        "or recalled",
    )
