"""The fold of message records."""

import struct
from typing import Final

from broker.log.folded import Arrivals, EntryRefused, Folded
from broker.log.state import BrokerState
from broker.messages.record_facts import read_record_facts
from broker.messages.state import MESSAGES
from broker.topics.state import TOPICS
from dledger import HEADER_BYTES, Entry

# One message in a consume queue: physical offset, size, hash of the tag.
UNIT: Final = struct.Struct(">qiq")


class RecordFold:
    """Folds the records of one run of entries. Implements `log.registry.FoldsRecords`."""

    __slots__ = ("_arrivals", "_folded", "_messages", "_state", "_topics")

    def __init__(self, state: BrokerState, folded: Folded) -> None:
        self._state = state
        self._folded = folded
        self._messages = state[MESSAGES]
        self._topics = state[TOPICS]
        self._arrivals = folded.arrivals

    def __call__(self, entry: Entry) -> EntryRefused | None:
        """Index one message, if it is the next of its queue and the command behind it is taken."""
        body = entry.body
        facts = read_record_facts(body)
        if facts is None:
            return EntryRefused("a record that cannot be read")
        topic, queue_id, offset, place, size, tags_code, store_timestamp = facts
        messages = self._messages
        ends = messages.queue_ends.get(topic)
        if ends is None:
            if topic not in self._topics.configs:
                return EntryRefused(f"a record of topic {topic}, which does not exist")
            ends = messages.queue_ends[topic] = {}
        if ends.get(queue_id, 0) != offset or place != entry.pos + HEADER_BYTES:
            return EntryRefused(
                f"record {offset} of {topic}/{queue_id} where {ends.get(queue_id, 0)} is next"
            )
        if size != len(body):
            registry = self._state.registry
            refused = registry.fold(self._state, self._folded, entry, body[size:], is_attached=True)
            if refused is not None:
                return refused
        ends[queue_id] = offset + 1
        messages.messages += 1
        newest = messages.store_timestamp_ms
        if store_timestamp > newest:
            messages.store_timestamp_ms = store_timestamp
            if store_timestamp >= messages.time_marks.next_ms:
                messages.time_marks.add(newest, entry.index, store_timestamp)
            if store_timestamp >= messages.quarter_counts.next_ms:
                messages.quarter_counts.add(store_timestamp, messages.messages - 1)
        key = (topic, queue_id)
        arrivals = self._arrivals.get(key)
        if arrivals is None:
            arrivals = self._arrivals[key] = Arrivals(offset)
        arrivals.units.append(UNIT.pack(place, size, tags_code))
        arrivals.records.append(body if size == len(body) else body[:size])
        arrivals.tags_codes.add(tags_code)
        return None
