"""Acknowledgements (200051, 200151), and changes of invisible times (200053).

Source: RocketMQ's AckMessageProcessor and ChangeInvisibleTimeProcessor.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker.errors import RequestRefused
from broker.formats.state import FORMATS
from broker.log.entry import RENEWALS_VERSION
from broker.log.submissions import submit_commands
from broker.pop.choice import Chooser
from broker.pop.commands import AckPopped, HidePopped, PoppedMessage
from broker.pop.detours import DETOURS, LITE_TOPIC_FIELD
from broker.pop.gathered_acks import GatheredAcks
from broker.pop.handle import TOPIC_KIND, check_point_queue, is_of_order, popped_ms_of
from broker.pop.request import read_invisible_ms
from broker.pop.state import POPS, InFlight, QueueKey
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.store.message_reader import MESSAGE_READER
from broker.topics.needs import group_need, topic_need
from broker.topics.state import TOPICS
from broker.traffic.traffic import TRAFFIC
from remoting.bodies.pop import MAX_ACKS, decode_batch_ack
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command


class PopAcks:
    """Answers acknowledgements, and changes of invisible times.

    Implements `Acknowledged`.

    Args:
        chooser: told when a message will be due.
        freed: called with queues that may have something to give now.

    Attributes:
        gathered: the acknowledgements that wait for an entry.
    """

    def __init__(
        self, parts: Parts, chooser: Chooser, freed: Callable[[Iterable[QueueKey]], None]
    ) -> None:
        self._pops = parts.state[POPS]
        self._topics = parts.state[TOPICS]
        self._formats = parts.state[FORMATS]
        self._log = parts.log
        self.gathered = GatheredAcks(parts, self, AckPopped, MAX_ACKS)
        self._reader = parts[MESSAGE_READER]
        self._chooser = chooser
        self._freed = freed
        self._detours = parts[DETOURS]
        self._traffic = parts[TRAFFIC]
        self._wall_clock_ms = parts.wall_clock_ms

    def ack(self, origin: Origin, command: Command) -> None:
        """Acknowledge a message.

        Raises RequestRefused: (2) too many wait, (13) no such queue, (17) no such topic, (29) an
        invalid handle, (208) it was given again, or there is no such message.
        """
        if self._detours.ack is not None and command.fields.get(LITE_TOPIC_FIELD):
            self._detours.ack(origin, command)
            return
        message = self._message(command)
        if not self.is_out(message):
            self._check_was_out(message)
        self.gathered.ack(message, origin, command)

    @staticmethod
    def batch_needs(command: Command) -> Sequence[Need]:
        """Need to consume in each group, and from each topic."""
        pops = decode_batch_ack(command.body)
        groups = {group_need(pop.group, Action.SUB) for pop in pops}
        return sorted(groups | {topic_need(pop.topic, Action.SUB) for pop in pops})

    def ack_batch(self, origin: Origin, command: Command) -> None:
        """Acknowledge many; those that are not in flight, or were given again, are skipped.

        Raises BodyMalformed; RequestRefused (2): too many wait.
        """
        messages = [
            PoppedMessage(pop.group, pop.topic, pop.queue_id, offset, pop.popped_ms)
            for pop in decode_batch_ack(command.body)
            if pop.kind == TOPIC_KIND  # others are of RocketMQ's retry topics
            for offset in pop.offsets
        ]
        if all(map(self.is_out, messages)):
            self._ack_all(messages, origin, command)
        else:
            self.gathered.when_sure(origin, command, partial(self._ack_all, messages))

    def _ack_all(self, messages: Sequence[PoppedMessage], origin: Origin, command: Command) -> None:
        out: list[PoppedMessage] = []
        for one in messages:
            flight = self._flight(one)
            if flight is not None and flight.popped_ms == one.popped_ms:
                out.append(one)
        if out:
            self.gathered.add(out, replying(origin, command))
        else:
            origin.send(command.reply())

    def hide(self, origin: Origin, command: Command) -> None:
        """Change the time at which a message is given again.

        All handles of this delivery stay good until it is given again. Until all members read
        entries of version 8, only the handle that the answer makes is.

        Raises RequestRefused (29): a bad time, or an invalid handle.
        """
        if self._detours.hide is not None and command.fields.get(LITE_TOPIC_FIELD):
            self._detours.hide(origin, command)
            return
        message = self._message(command)
        invisible_ms = read_invisible_ms(command)
        flight = self._flight(message)
        if flight is None or flight.popped_ms != message.popped_ms:
            origin.send(not_hidden(command, _given_again(message)))
            return
        hidden_ms = max(self._wall_clock_ms(), flight.popped_ms + 1)
        keeps = self._formats.format_version >= RENEWALS_VERSION
        is_suspended = keeps and command.boolean("suspend")
        hide = HidePopped(message, hidden_ms, hidden_ms + invisible_ms, keeps, is_suspended)
        popped_ms = message.popped_ms if keeps else hidden_ms
        is_ordered = is_of_order(command.text("extraInfo"))

        def then(refusal: RequestRefused | None) -> None:
            if refusal is None:
                flight = self._flight(message)
                if flight is None or flight.popped_ms != popped_ms:
                    refusal = _given_again(message)
            if refusal is not None:
                origin.send(not_hidden(command, refusal))
                return
            # Counted as an acknowledgement and another pop.
            self._traffic.acknowledged(message.group, message.topic, 1)
            self._traffic.popped(message.group, message.topic)
            self._chooser.shown(message.key, hide.visible_ms)
            self._freed([message.key])
            origin.send(hidden(command, popped_ms, hide.visible_ms, is_ordered))

        submit_commands(self._log, [hide], then)

    def is_out(self, message: PoppedMessage) -> bool:
        return self._flight(message) is not None

    def given_again(self, message: PoppedMessage) -> RequestRefused | None:
        flight = self._pops.flight(message.key, message.offset)
        if flight is None or flight.popped_ms == message.popped_ms:
            return None
        return _given_again(message)

    def count(self, messages: Sequence[PoppedMessage]) -> None:
        counts = Counts((message.group, message.topic) for message in messages)
        for (group, topic), count in counts.items():
            self._traffic.acknowledged(group, topic, count)

    def free(self, messages: Sequence[PoppedMessage]) -> None:
        self._freed({message.key for message in messages})

    def _message(self, command: Command) -> PoppedMessage:
        """Read the message of a request. Raises FieldMissing, RequestRefused (29)."""
        return PoppedMessage(
            command.name("consumerGroup"),
            command.name("topic"),
            command.int32("queueId"),
            command.integer("offset"),
            popped_ms_of(command.text("extraInfo")),
        )

    def _check_was_out(self, message: PoppedMessage) -> None:
        """Check that there is such a message. Raises RequestRefused (13, 17, 208)."""
        config = self._topics.configs.get(message.topic)
        if config is None:
            raise RequestRefused.no_topic(
                f"topic[{message.topic:.127}] not exist: its messages are gone with it"
            )
        queues = max(config.read_queue_count, config.write_queue_count)
        if not 0 <= message.queue_id < queues:
            raise RequestRefused.illegal(
                f"topic[{message.topic:.127}] has {queues} queues, and none {message.queue_id}"
            )
        if not 0 <= message.offset < self._reader.end(message.topic, message.queue_id):
            raise RequestRefused(
                ResponseCode.NO_MESSAGE,
                f"{message.topic:.127}/{message.queue_id} has no message {message.offset} yet",
            )

    def _flight(self, message: PoppedMessage) -> InFlight | None:
        """Return the in-flight state of a message; None if it has none, or is acknowledged."""
        flight = self._pops.flight(message.key, message.offset)
        return None if flight is None or flight.is_settled else flight


def hidden(command: Command, popped_ms: int, visible_ms: int, is_ordered: bool) -> Command:
    """Answer a 200053 that hid a message which was given at `popped_ms`."""
    fields = {
        "popTime": str(popped_ms),
        # Clients take the sum for the end of the invisible time.
        "invisibleTime": str(visible_ms - popped_ms),
        "reviveQid": str(check_point_queue(is_ordered)),
    }
    return command.reply(fields=fields)


def not_hidden(command: Command, refusal: RequestRefused) -> Command:
    """Refuse with the fields that Java's client wants in each reply to 200053."""
    fields = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    return command.reply(refusal.code, fields, remark=refusal.remark)


def _given_again(message: PoppedMessage) -> RequestRefused:
    return RequestRefused(
        ResponseCode.NO_MESSAGE,
        f"message {message.offset} of {message.topic:.127}/{message.queue_id} is not this "
        "consumer's any more: its invisible time was over",
    )
