"""Messages in flight that cannot be given again: those that failed too often become dead letters,
and those that retention has dropped are forgotten.
"""

import logging
from collections.abc import Callable
from typing import Final

from broker.errors import RequestRefused
from broker.log.submissions import submit_commands
from broker.pop.choice import Undeliverable
from broker.pop.commands import AckPopped, BuryPopped, PoppedMessage
from broker.pop.state import QueueKey
from broker.retention.full_disk import FULL_DISK
from broker.retry.copies import dead_letter_properties
from broker.sends.copies import COPIES, Copy, StandIn
from broker.sends.sends import SENDS
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import created_for_group, dead_letter_topic
from broker.topics.state import TOPICS
from remoting.message.properties import edit_properties
from remoting.message.record import decode_record
from remoting.wire.field_values import saturated_int32
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

_WHAT: Final = "a dead letter of a group that pops"

# Dead letters in flight; the others follow with the next pops. The log accepts as many messages of
# 4 MiB at once.
MAX_UNDER_WAY: Final = 64


class UndeliverableMessages:
    """Removes them from those in flight."""

    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._log = parts.log
        self._reader = parts[MESSAGE_READER]
        self._sends = parts[SENDS]
        self._copies = parts[COPIES]
        self._disk = parts[FULL_DISK]
        self._under_way: set[tuple[QueueKey, int]] = set()  # a new set for each term

    def begin_term(self) -> None:
        self._under_way = set()

    def take(self, found: list[Undeliverable]) -> None:
        for one in found:
            place = one.key, one.offset
            if place in self._under_way:
                continue
            if len(self._under_way) >= MAX_UNDER_WAY:
                break
            self._take(one)
        found.clear()

    def _take(self, one: Undeliverable) -> None:
        message = PoppedMessage(*one.key, one.offset, one.flight.popped_ms)
        if not one.is_dead_letter:
            _log.warning(
                "message %d of %s/%d was never acknowledged by group %s, and is gone: retention "
                "has dropped it",
                one.offset,
                quoted(one.key[1]),
                one.key[2],
                quoted(one.key[0]),
            )
            submit_commands(self._log, [AckPopped([message])], self._began(one))
        elif not self._disk.is_refusing:
            _group, topic, queue_id = one.key
            units = self._reader.units(topic, queue_id, one.offset, 1)
            if not units:
                return  # retention has dropped it meanwhile; the next pop forgets it
            stand_in = StandIn(BuryPopped(message), AckPopped([message]))
            self._copies.attempt(
                _WHAT,
                units[0][0],
                stand_in,
                self._began(one),
                lambda: self._bury(one, message, stand_in),
            )
            self._sends.flush()

    def _bury(self, one: Undeliverable, message: PoppedMessage, stand_in: StandIn) -> None:
        group, topic, queue_id = one.key
        found = self._reader.read(topic, queue_id, one.offset, 1)
        record, _end = decode_record(found.messages)
        record.properties = edit_properties(
            record.properties, dead_letter_properties(record, record.property_map())
        )
        times = saturated_int32(record.reconsume_times)
        record.reconsume_times = saturated_int32(times + one.flight.times)
        config = created_for_group(dead_letter_topic(group))
        config = self._topics.configs.get(config.topic, config)
        bury = BuryPopped(message)
        copy = Copy(
            _WHAT,
            config.topic,
            one.offset % config.write_queue_count,
            record,
            self._began(one),
            stand_in,
            lambda _record: bury,
        )
        self._copies.store_when_created(config, copy)

    def _began(self, one: Undeliverable) -> Callable[[RequestRefused | None], None]:
        under_way, place = self._under_way, (one.key, one.offset)
        under_way.add(place)

        return lambda _refusal: under_way.discard(place)
