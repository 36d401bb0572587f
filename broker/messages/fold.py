"""The fold of message records."""

from broker.formats.state import FORMATS
from broker.log.entry import RUNS_VERSION
from broker.log.folded import Arrivals, EntryRefused, Folded
from broker.log.state import BrokerState
from broker.messages.record_facts import read_record_facts
from broker.messages.record_run import holds_several, read_run
from broker.messages.state import MESSAGES
from broker.topics.state import TOPICS
from dledger import HEADER_BYTES, Entry


class RecordFold:
    """Folds the records of one state. Implements `log.state.FoldsRecords`."""

    __slots__ = ("_format", "_messages", "_topics")

    def __init__(self, state: BrokerState) -> None:
        self._messages = state[MESSAGES]
        self._topics = state[TOPICS]
        self._format = state[FORMATS]

    def __call__(self, state: BrokerState, folded: Folded, entry: Entry) -> EntryRefused | None:
        """Index one message, if it is the next of its queue and its command is accepted; or
        several, if each is the next of its queue.
        """
        body = entry.body
        facts = read_record_facts(body, folds=True)
        if facts is None:
            return EntryRefused("a record that cannot be read")
        if holds_several(body, facts.size):
            return self._fold_several(folded, entry)
        topic, queue_id, offset, place, size, tags_code, store_timestamp = facts
        end = self._queue_end(topic, queue_id)
        if end is None:
            return EntryRefused(f"a record of topic {topic}, which does not exist")
        if end != offset or place != entry.pos + HEADER_BYTES:
            return _out_of_place(topic, queue_id, offset, end)
        if size != len(body):
            refused = state.registry.fold(state, folded, entry, body[size:], is_attached=True)
            if refused is not None:
                return refused
        self._ends(topic)[queue_id] = offset + 1
        messages = self._messages
        self._pass_time(entry.index, store_timestamp, messages.messages)
        messages.messages += 1
        key = (topic, queue_id)
        arrivals = folded.arrivals.get(key)
        if arrivals is None:
            arrivals = folded.arrivals[key] = Arrivals(offset)
        arrivals.places.append(place)
        arrivals.sizes.append(size)
        arrivals.codes.append(tags_code)
        arrivals.bodies.append((body, place, 1))
        return None

    def pass_over(self, entry: Entry) -> None:
        self._messages.passed_over.add(entry.index)

    def _fold_several(self, folded: Folded, entry: Entry) -> EntryRefused | None:
        if self._format.format_version < RUNS_VERSION:
            return EntryRefused("several records, in a log of a format without them")
        run = read_run(entry.body, entry.pos + HEADER_BYTES)
        if isinstance(run, str):
            return EntryRefused(run)
        for (topic, queue_id), arrived in run.arrivals.items():
            end = self._queue_end(topic, queue_id)
            if end is None:
                return EntryRefused(f"a record of topic {topic}, which does not exist")
            if end != arrived.first_offset:
                return _out_of_place(topic, queue_id, arrived.first_offset, end)
        messages = self._messages
        for before, store_timestamp in run.times:
            self._pass_time(entry.index, store_timestamp, messages.messages + before)
        for key, arrived in run.arrivals.items():
            count = len(arrived.places)
            messages.messages += count
            self._ends(key[0])[key[1]] = arrived.first_offset + count
            known = folded.arrivals.get(key)
            if known is None:
                folded.arrivals[key] = arrived
            else:
                known.add(arrived)
        return None

    def _queue_end(self, topic: str, queue_id: int) -> int | None:
        """Return the offset of the queue's next message; None if there is no such topic."""
        messages = self._messages
        ends = messages.queue_ends.get(topic)
        end = None if ends is None else ends.get(queue_id)
        if end is not None:
            return end
        return messages.begins.get(topic, 0) if topic in self._topics.configs else None

    def _ends(self, topic: str) -> dict[int, int]:
        """Return the ends of the queues of a topic, to be changed."""
        ends = self._messages.queue_ends.get(topic)
        if ends is None:
            ends = self._messages.queue_ends[topic] = {}
        return ends

    def _pass_time(self, index: int, store_timestamp: int, before: int) -> None:
        """Note the store time of a message in entry `index`; `before` messages were
        folded earlier.
        """
        messages = self._messages
        newest = messages.store_timestamp_ms
        if store_timestamp <= newest:
            return
        messages.store_timestamp_ms = store_timestamp
        if store_timestamp >= messages.time_marks.next_ms:
            messages.time_marks.add(newest, index, store_timestamp)
        if store_timestamp >= messages.quarter_counts.next_ms:
            messages.quarter_counts.add(store_timestamp, before)


def _out_of_place(topic: str, queue_id: int, offset: int, end: int) -> EntryRefused:
    return EntryRefused(f"record {offset} of {topic}/{queue_id} where {end} is next")
