"""Acknowledgements of messages of lite topics (200072, and 200051 with a lite topic), and changes
of their invisible times (200053 with one).
"""

from collections.abc import Sequence

from broker.errors import RequestRefused
from broker.lite import rows
from broker.lite.commands import AckLite, HideLite, LiteMessage
from broker.lite.limits import MAX_LITE_ACKS
from broker.lite.names import lite_key
from broker.lite.popping import LITE_POPPING, LiteKey
from broker.lite.state import LITE
from broker.log.submissions import submit_commands
from broker.pop.acks import hidden, not_hidden
from broker.pop.detours import LITE_TOPIC_FIELD
from broker.pop.gathered_acks import GatheredAcks
from broker.pop.handle import popped_ms_of
from broker.pop.request import read_invisible_ms
from broker.pop.state import InFlight
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.traffic.traffic import TRAFFIC
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command


class LiteAcks:
    """Answers acknowledgements, and changes of invisible times.

    Implements `Acknowledged`.

    Attributes:
        gathered: the acknowledgements that wait for an entry.
    """

    def __init__(self, parts: Parts) -> None:
        self._lite = parts.state[LITE]
        self._log = parts.log
        self.gathered = GatheredAcks(parts, self, AckLite, MAX_LITE_ACKS)
        self._popping = parts[LITE_POPPING]
        self._traffic = parts[TRAFFIC]
        self._wall_clock_ms = parts.wall_clock_ms

    def ack(self, origin: Origin, command: Command) -> None:
        """Acknowledge a message.

        Raises RequestRefused: (2) too many wait, (29) an invalid handle or name, (208) it was given
        again, or there is no such message.
        """
        message = _message(command)
        if not self.is_out(message):
            row = self._lite.row(message.parent, message.lite_topic.encode())
            if row is None or not 0 <= message.offset < rows.end(row):
                raise _no_message(message)
        self.gathered.ack(message, origin, command)

    def hide(self, origin: Origin, command: Command) -> None:
        """Change the time at which a message is given again; with `suspend` all that were given
        with it.

        Raises RequestRefused (29): a bad time or name, or an invalid handle.
        """
        message = _message(command)
        invisible_ms = read_invisible_ms(command)
        flight = self._flight(message)
        if flight is None or flight.popped_ms != message.popped_ms:
            origin.send(not_hidden(command, _given_again(message)))
            return
        hidden_ms = max(self._wall_clock_ms(), flight.popped_ms + 1)
        visible_ms = hidden_ms + invisible_ms
        hide = HideLite(message, hidden_ms, visible_ms, command.boolean("suspend"))

        def then(refusal: RequestRefused | None) -> None:
            if refusal is None:
                flight = self._flight(message)
                if flight is None or flight.popped_ms != message.popped_ms:
                    refusal = _given_again(message)
            if refusal is not None:
                origin.send(not_hidden(command, refusal))
                return
            self._traffic.acknowledged(message.group, message.parent, 1)
            self._traffic.popped(message.group, message.parent)
            self._popping.wake_at(_key(message), visible_ms)
            self._popping.freed([_key(message)])
            origin.send(hidden(command, message.popped_ms, visible_ms, is_ordered=True))

        submit_commands(self._log, [hide], then)

    def is_out(self, message: LiteMessage) -> bool:
        return self._flight(message) is not None

    def given_again(self, message: LiteMessage) -> RequestRefused | None:
        flight = self._flight(message)
        if flight is None or flight.popped_ms == message.popped_ms:
            return None
        return _given_again(message)

    def count(self, messages: Sequence[LiteMessage]) -> None:
        for message in messages:
            self._traffic.acknowledged(message.group, message.parent, 1)

    def free(self, messages: Sequence[LiteMessage]) -> None:
        self._popping.freed(dict.fromkeys(map(_key, messages)))

    def _flight(self, message: LiteMessage) -> InFlight | None:
        """Return the in-flight state of a message; None if it has none, or is acknowledged."""
        name = message.lite_topic.encode()
        queue = self._lite.queue(message.group, message.parent, name)
        flight = None if queue is None else queue.in_flight.get(message.offset)
        return None if flight is None or flight.is_settled else flight


def _message(command: Command) -> LiteMessage:
    """Read the message of a request. Raises FieldMissing, RequestRefused (29)."""
    name = lite_key(command.text(LITE_TOPIC_FIELD))
    return LiteMessage(
        command.name("consumerGroup"),
        command.name("topic"),
        name.decode(),
        command.integer("offset"),
        popped_ms_of(command.text("extraInfo")),
    )


def _key(message: LiteMessage) -> LiteKey:
    return message.group, message.parent, message.lite_topic.encode()


def _given_again(message: LiteMessage) -> RequestRefused:
    return RequestRefused(
        ResponseCode.NO_MESSAGE,
        f"message {message.offset} of lite topic {message.lite_topic} is not this consumer's any "
        "more: its invisible time was over",
    )


def _no_message(message: LiteMessage) -> RequestRefused:
    return RequestRefused(
        ResponseCode.NO_MESSAGE,
        f"lite topic {message.lite_topic} has no message {message.offset}: it may have ended",
    )
