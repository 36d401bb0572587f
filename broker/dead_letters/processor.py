"""Redrives dead letters (31001, a request of our own)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.dead_letters.commands import Redrive
from broker.dead_letters.request import TO_GROUP, RedriveRequest, read_redrive_request
from broker.dead_letters.state import REDRIVEN
from broker.errors import NeverStored, RequestRefused
from broker.groups.state import GROUPS
from broker.retention.full_disk import FULL_DISK
from broker.sends.copies import COPIES, Copy
from broker.sends.sends import SENDS
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import created_for_group, dead_letter_topic, retry_topic
from broker.topics.needs import cluster_need, group_need
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import PERMISSION_WRITE, TopicConfig
from remoting.message.errors import MessageMalformed
from remoting.message.message_id import message_id
from remoting.message.properties import (
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_ORIGIN_TOPIC,
    DELAY_TIME_LEVEL,
    FIRST_POP_TIME,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    POP_CHECKPOINT,
    RECONSUME_TIME,
    RETRY_TOPIC,
    UNIQUE_KEY,
    edit_properties,
)
from remoting.message.record import MessageRecord, decode_record
from remoting.wire.command import Command

# Read by one request; 256 KiB at most, as in a pull.
_LOOKED_AT: Final = 256

# Runs of redriven offsets in all queues; 16 bytes each in memory and in each snapshot.
MAX_RUNS: Final = 100_000

# Properties about failures, which a copy lacks.
_OF_FAILURES: Final = (
    DEAD_LETTER_ORIGIN_TOPIC,
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DELAY_TIME_LEVEL,
    RECONSUME_TIME,
    MAX_RECONSUME_TIMES,
    POP_CHECKPOINT,
    FIRST_POP_TIME,
)


class _Chosen(NamedTuple):
    """A copy of a dead letter, and the topic for it."""

    copy: MessageRecord
    to: TopicConfig
    command: Redrive


@dataclass(slots=True)
class _Outcome:
    """The result of a request.

    Attributes:
        next_offset: where the next request continues.
        chosen: the dead letters to redrive.
        taken: how many were redriven before.
        passed_over: how many were not asked for.
        without_topic: how many do not name their original topic, or it is gone.
        never_stored: how many do not fit an entry of the log any more; they stay.
        unreadable: how many records cannot be read; they stay, too.
    """

    next_offset: int
    end: int
    chosen: list[_Chosen] = field(default_factory=list)
    taken: int = 0
    passed_over: int = 0
    without_topic: int = 0
    never_stored: int = 0
    unreadable: int = 0

    def fields(self) -> dict[str, str]:
        return {
            "redriven": str(len(self.chosen) - self.never_stored),
            "taken": str(self.taken),
            "passedOver": str(self.passed_over),
            "withoutTopic": str(self.without_topic),
            "neverStored": str(self.never_stored + self.unreadable),
            "nextOffset": str(self.next_offset),
            "endOffset": str(self.end),
        }


class RedriveProcessor:
    """Stores copies of dead letters in their group's retry topic, or in their original topic."""

    @staticmethod
    def needs(command: Command) -> Sequence[Need]:
        """Need to change the group; and the cluster, if letters go to all groups of a topic."""
        group = group_need(command.name("consumerGroup"), Action.UPDATE)
        to_topic = command.fields.get("target", TO_GROUP) != TO_GROUP
        return (group, cluster_need(Action.UPDATE)) if to_topic else (group,)

    def __init__(self, parts: Parts) -> None:
        self._redriven = parts.state[REDRIVEN]
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._sends = parts[SENDS]
        self._copies = parts[COPIES]
        self._reader = parts[MESSAGE_READER]
        self._disk = parts[FULL_DISK]
        self._settings = parts[SETTINGS]
        self._turn = 0
        self._busy: set[tuple[str, int]] = set()  # queues with copies in flight

    def begin_term(self) -> None:
        """Forget copies of an earlier term, which are applied or lost."""
        self._busy = set()

    def redrive(self, origin: Origin, command: Command) -> Command | None:
        """Redrive some dead letters of a queue; answer when all are stored.

        Repeating a request is safe: no copy is stored twice.

        Raises RequestRefused: (2) copies of this queue are in flight, or there are too many gaps,
        (14) the disk is too full, (16) clients may not send, or not to a topic, (17) the group has
        no dead letters, (26) no such group, (29) no such queue, or an invalid value.
        """
        self._disk.check()
        self._settings.check_writable()
        request = read_redrive_request(command)
        topic = dead_letter_topic(request.group)
        if request.queue_id >= self._topics.found(topic).read_queue_count:
            raise RequestRefused.invalid(f"topic {topic} has no queue {request.queue_id}")
        if request.group not in self._groups.configs:
            raise RequestRefused.no_group(
                f"subscription group not exist, {request.group}: nobody would consume them"
            )
        queue = (topic, request.queue_id)
        if queue in self._busy:
            raise RequestRefused.busy(f"dead letters of {topic} are on their way: ask again")
        outcome = self._look(topic, request)
        if request.is_dry or not outcome.chosen:
            return command.reply(fields=outcome.fields())
        self._check_room(topic)
        self._send(origin, command, queue, outcome)
        return None

    def _look(self, topic: str, request: RedriveRequest) -> _Outcome:
        queue_id = request.queue_id
        begin = self._reader.begin(topic, queue_id)
        offset = max(request.offset, begin)
        found = self._reader.read(topic, queue_id, offset, _LOOKED_AT)
        outcome = _Outcome(offset, found.end)
        units = self._reader.units(topic, queue_id, offset, found.message_count)
        end = 0
        for _place, size, _code in units:
            if len(outcome.chosen) >= request.most:
                break
            outcome.next_offset += 1
            begins, end = end, end + size
            try:
                record, _end = decode_record(found.messages[begins:end])
            except MessageMalformed:
                outcome.unreadable += 1
                continue
            pairs = record.property_map()
            if not request.begin_ms <= record.store_timestamp <= request.end_ms or (
                request.ids and request.ids.isdisjoint(_ids(record, pairs))
            ):
                outcome.passed_over += 1
            elif self._redriven.has(topic, queue_id, record.queue_offset):
                outcome.taken += 1
            elif (to := self._target(request, pairs)) is None:
                outcome.without_topic += 1
            else:
                place = record.queue_offset, record.physical_offset
                redrive = Redrive(topic, queue_id, *place, begin)
                outcome.chosen.append(_Chosen(_copy(record, pairs, request), to, redrive))
        return outcome

    def _target(self, request: RedriveRequest, pairs: dict[str, str]) -> TopicConfig | None:
        """Return the topic for a copy; None if the dead letter does not name it, or it is gone.

        Raises RequestRefused (16): the target topic is not writable.
        """
        came_from = _origin(pairs)
        if not came_from:
            return None
        if request.to_topic:
            config = self._topics.configs.get(came_from)
        else:
            group = self._groups.configs[request.group]
            made = created_for_group(retry_topic(request.group), max(1, group.retry_queue_count))
            config = self._topics.configs.get(made.topic, made)
        if config is not None and not config.permission & PERMISSION_WRITE:
            raise RequestRefused.forbidden(
                f"the topic[{config.topic}] sending message is forbidden"
            )
        return config

    def _check_room(self, topic: str) -> None:
        taken = sum(len(runs) for of in self._redriven.runs.values() for runs in of.values())
        if taken + _LOOKED_AT > MAX_RUNS:
            raise RequestRefused.busy(
                f"dead letters were taken with over {MAX_RUNS - _LOOKED_AT} gaps between: take all "
                f"of one group, or delete a topic such as {topic}"
            )

    def _send(
        self, origin: Origin, command: Command, queue: tuple[str, int], outcome: _Outcome
    ) -> None:
        """Submit the copies together; answer when the last one is stored or refused."""
        busy = self._busy
        busy.add(queue)
        waiting = len(outcome.chosen)
        refusals: list[RequestRefused] = []

        def done(refusal: RequestRefused | None) -> None:
            nonlocal waiting
            waiting -= 1
            if isinstance(refusal, NeverStored):
                outcome.never_stored += 1
            elif refusal is not None:
                refusals.append(refusal)
            if waiting:
                return
            busy.discard(queue)
            if refusals:
                # Some may be stored. They are skipped when the client asks again.
                origin.send(refusals[0].reply_to(command))
            else:
                origin.send(command.reply(fields=outcome.fields()))

        for chosen in outcome.chosen:
            self._turn += 1
            queue_id = self._turn % chosen.to.write_queue_count
            redrive = chosen.command
            copy = Copy(
                f"a dead letter of topic {redrive.topic}",
                chosen.to.topic,
                queue_id,
                chosen.copy,
                done,
                None,
                lambda _record, redrive=redrive: redrive,  # type: ignore[misc]
            )
            self._copies.store_when_created(chosen.to, copy)
        self._sends.flush()


def _origin(pairs: dict[str, str]) -> str:
    """Return the original topic of a dead letter, or ""."""
    return pairs.get(DEAD_LETTER_ORIGIN_TOPIC) or pairs.get(RETRY_TOPIC) or ""


def _ids(record: MessageRecord, pairs: dict[str, str]) -> Sequence[str]:
    """Return the ids by which an operator may know a dead letter: its own, and those of the
    original.
    """
    return (
        pairs.get(UNIQUE_KEY, ""),
        pairs.get(DEAD_LETTER_ORIGIN_MESSAGE_ID, ""),
        pairs.get(ORIGIN_MESSAGE_ID, ""),
        message_id(record.store_host, record.store_port, record.physical_offset),
    )


def _copy(record: MessageRecord, pairs: dict[str, str], request: RedriveRequest) -> MessageRecord:
    """Return the dead letter as a message that has not failed yet."""
    if request.to_topic:
        marks = (*_OF_FAILURES, RETRY_TOPIC, ORIGIN_MESSAGE_ID)
        record.properties = edit_properties(record.properties, {}, marks)
    else:
        came_from = {RETRY_TOPIC: _origin(pairs)}
        record.properties = edit_properties(record.properties, came_from, _OF_FAILURES)
    record.reconsume_times = 0
    return record
