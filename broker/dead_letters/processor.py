"""Delivers dead letters once more (31001, a request of our own)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.dead_letters.commands import Redrive
from broker.dead_letters.request import RedriveRequest, read_redrive_request
from broker.dead_letters.state import REDRIVEN
from broker.errors import NeverStored, RequestRefused
from broker.groups.state import GROUPS
from broker.retention.full_disk import FULL_DISK
from broker.sends.copies import COPIES, Copy
from broker.sends.sends import SENDS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.settings.settings import SETTINGS
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import created_for_group, dead_letter_topic, retry_topic
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

# Looked at by one request; 256 KiB at most, as in a pull.
_LOOKED_AT: Final = 256

# Gaps in what was taken, of all queues together; 16 bytes each in memory and in each snapshot.
MAX_RUNS: Final = 100_000

# What a message carries of its failures. A copy begins anew.
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
    """A dead letter that is delivered once more, as a copy for a topic."""

    copy: MessageRecord
    to: TopicConfig
    command: Redrive


@dataclass(slots=True)
class _Outcome:
    """What a request finds.

    Attributes:
        next_offset: where the next request goes on.
        end: the end of the queue.
        chosen: what is delivered once more.
        taken: how many were delivered once more before.
        passed_over: how many were not asked for.
        without_topic: how many do not say which topic they were sent to, or it is gone.
        never_stored: how many no entry of the log can hold any more; they stay where they are.
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
        """As they stand in the reply."""
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
    """Stores copies of dead letters: in their group's retry topic, or in that they come from."""

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
        self._busy: set[tuple[str, int]] = set()  # queues of which some are on their way

    def begin_term(self) -> None:
        """What was on its way is in the log, or gone."""
        self._busy = set()

    def redrive(self, origin: Origin, command: Command) -> Command | None:
        """Deliver some dead letters of a queue once more; answer when all are stored.

        To ask again with the same fields is safe: what was stored is not stored again.

        Raises:
            RequestRefused: (2) some of this queue are on their way, or too many gaps, (14) the disk
                is too full, (16) clients may not send, or not to a topic, (17) the group has no
                dead letters, (26) no such group, (29) no such queue, or a value that cannot be.
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
        """Choose the dead letters that are asked for, from where the request begins."""
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
        """The topic for a copy; None if a dead letter cannot say it, or it is gone.

        Raises RequestRefused (16): nobody may send there.
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
        """Raises RequestRefused (2) when what was taken has too many gaps."""
        taken = sum(len(runs) for of in self._redriven.runs.values() for runs in of.values())
        if taken + _LOOKED_AT > MAX_RUNS:
            raise RequestRefused.busy(
                f"dead letters were taken with over {MAX_RUNS - _LOOKED_AT} gaps between: take all "
                f"of one group, or delete a topic such as {topic}"
            )

    def _send(
        self, origin: Origin, command: Command, queue: tuple[str, int], outcome: _Outcome
    ) -> None:
        """Hand the copies to the log in one go; answer when the last one is stored or refused."""
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
                # Some may be stored. They are passed over when the client asks again.
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
    """The topic that a dead letter was first sent to, or ""."""
    return pairs.get(DEAD_LETTER_ORIGIN_TOPIC) or pairs.get(RETRY_TOPIC) or ""


def _ids(record: MessageRecord, pairs: dict[str, str]) -> Sequence[str]:
    """The ids that an operator may know a dead letter by: its own, and those of the message."""
    return (
        pairs.get(UNIQUE_KEY, ""),
        pairs.get(DEAD_LETTER_ORIGIN_MESSAGE_ID, ""),
        pairs.get(ORIGIN_MESSAGE_ID, ""),
        message_id(record.store_host, record.store_port, record.physical_offset),
    )


def _copy(record: MessageRecord, pairs: dict[str, str], request: RedriveRequest) -> MessageRecord:
    """The dead letter as a message that has not failed yet."""
    if request.to_topic:
        marks = (*_OF_FAILURES, RETRY_TOPIC, ORIGIN_MESSAGE_ID)
        record.properties = edit_properties(record.properties, {}, marks)
    else:
        came_from = {RETRY_TOPIC: _origin(pairs)}
        record.properties = edit_properties(record.properties, came_from, _OF_FAILURES)
    record.reconsume_times = 0
    return record
