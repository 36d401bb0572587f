"""The state machine proper: committed entries in, a changed state and index units out.

Deterministic and total. An entry that no broker can have written is passed over, on every member
alike, with a result that says so; only a command of a newer version stops the member.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.errors import CommandMalformed
from broker.log_entry import (
    CommitOffsets,
    DeleteGroup,
    DeleteTopic,
    EntryKind,
    KeepLogFrom,
    LockQueues,
    LogCommand,
    PutGroup,
    PutTopic,
    decode_log_command,
    kind_of,
)
from broker.record_facts import RecordFacts, read_record_facts
from broker.state import BrokerState
from dledger import Entry

# One message in a consume queue: physical offset, size, hash of the tag.
UNIT: Final = struct.Struct(">qiq")


@dataclass(frozen=True, slots=True)
class EntryRefused:
    """The result of an entry that was passed over."""

    reason: str


@dataclass(slots=True)
class Arrivals:
    """The messages that came to one queue in one run of entries."""

    first_offset: int
    units: list[bytes] = field(default_factory=list)
    tags_codes: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Folded:
    """What a run of entries did, besides changing the state.

    Attributes:
        results: one an entry; None, or `EntryRefused`.
        deleted_topics: their queues are gone; they went before the arrivals came.
        arrivals: by topic and queue id.
        topics_changed: whether the name servers have to be told.
    """

    results: list[EntryRefused | None] = field(default_factory=list)
    deleted_topics: list[str] = field(default_factory=list)
    arrivals: dict[tuple[str, int], Arrivals] = field(default_factory=dict)
    topics_changed: bool = False


def fold(state: BrokerState, entries: Sequence[Entry]) -> Folded:
    """Apply a run of entries to `state`.

    Raises:
        EntryTooNew: a command of a newer broker; nothing behind it may be applied.
    """
    folded = Folded()
    add_result = folded.results.append
    for entry in entries:
        body = entry.body
        kind = kind_of(body)
        refused: EntryRefused | None
        if kind is EntryKind.RECORD:
            refused = _fold_record(state, folded, read_record_facts(body), entry)
        elif kind is EntryKind.COMMAND:
            refused = _fold_command(state, folded, entry)
        else:
            refused = EntryRefused("neither a message nor a command")
        if refused is not None:
            state.refused_entries += 1
        add_result(refused)
    if entries:
        state.log_end = entries[-1].body_pos + len(entries[-1].body)
    return folded


def _fold_record(
    state: BrokerState, folded: Folded, facts: RecordFacts | None, entry: Entry
) -> EntryRefused | None:
    """Index one message, if it is the next one of its queue."""
    if facts is None:
        return EntryRefused("a record that cannot be read")
    topic, queue_id, offset, place, size, tags_code, store_timestamp = facts
    ends = state.queue_ends.get(topic)
    if ends is None:
        if topic not in state.topics:
            return EntryRefused(f"a record of topic {topic}, which does not exist")
        ends = state.queue_ends[topic] = {}
    if ends.get(queue_id, 0) != offset or place != entry.body_pos:
        return EntryRefused(
            f"record {offset} of {topic}/{queue_id} where {ends.get(queue_id, 0)} is next"
        )
    ends[queue_id] = offset + 1
    state.messages += 1
    newest = state.store_timestamp_ms
    if store_timestamp > newest:
        state.store_timestamp_ms = store_timestamp
        if store_timestamp >= state.time_marks.next_ms:
            state.time_marks.add(newest, entry.index, store_timestamp)
    key = (topic, queue_id)
    arrivals = folded.arrivals.get(key)
    if arrivals is None:
        arrivals = folded.arrivals[key] = Arrivals(offset)
    arrivals.units.append(UNIT.pack(place, size, tags_code))
    arrivals.tags_codes.add(tags_code)
    return None


def _fold_command(state: BrokerState, folded: Folded, entry: Entry) -> EntryRefused | None:
    """Carry out one command."""
    try:
        command: LogCommand = decode_log_command(entry.body)
    except CommandMalformed as error:
        return EntryRefused(error.reason)
    match command:
        case PutTopic():
            return _put_topic(state, folded, command, entry)
        case DeleteTopic():
            _delete_topic(state, folded, command)
        case PutGroup():
            return _put_group(state, command)
        case DeleteGroup(name, with_offsets, with_locks):
            state.groups.pop(name, None)
            if with_offsets:
                _drop_offsets(state, [key for key in state.offsets if key[0] == name])
            if with_locks:
                state.locks.drop_group(name)
        case CommitOffsets():
            _commit_offsets(state, command)
        case KeepLogFrom(first_index, position, _):
            return _keep_log_from(state, first_index, position, entry)
        case LockQueues(name, client_id, is_lock, time_ms, queues):
            change = state.locks.lock if is_lock else state.locks.unlock
            change(name, client_id, queues, time_ms)
    return None


def _keep_log_from(
    state: BrokerState, first_index: int, position: int, entry: Entry
) -> EntryRefused | None:
    """Let go of the log's beginning. It never comes back, and never reaches what comes later."""
    if not (
        state.kept_from < first_index <= entry.index and state.kept_position < position <= entry.pos
    ):
        return EntryRefused(
            f"retention to entry {first_index} at {position}, where entry {state.kept_from} at "
            f"{state.kept_position} is the first"
        )
    state.kept_from, state.kept_position = first_index, position
    state.time_marks.drop_before(first_index)
    return None


def _put_topic(
    state: BrokerState, folded: Folded, command: PutTopic, entry: Entry
) -> EntryRefused | None:
    config = command.config
    old = state.topics.get(config.topic)
    if old == config or (command.only_if_absent and old is not None):
        return None
    limit = command.max_topics
    if old is None and limit is not None and len(state.topics) >= limit:
        return EntryRefused(f"there are {len(state.topics)} topics: delete one first")
    if old is None and limit is not None:
        state.created_at[config.topic] = entry.pos
    state.topics[config.topic] = config
    _topics_changed(state, folded, command.at_ms)
    return None


def _delete_topic(state: BrokerState, folded: Folded, command: DeleteTopic) -> None:
    topic = command.topic
    if state.topics.pop(topic, None) is None:
        return
    state.created_at.pop(topic, None)
    ends = state.queue_ends.pop(topic, {})
    for queue_id in ends:
        folded.arrivals.pop((topic, queue_id), None)
    folded.deleted_topics.append(topic)
    # A topic made again starts at 0: old offsets would point past its end.
    _drop_offsets(state, [key for key in state.offsets if key[1] == topic])
    if command.with_locks:
        state.locks.drop_topic(topic)
    _topics_changed(state, folded, command.at_ms)


def _put_group(state: BrokerState, command: PutGroup) -> EntryRefused | None:
    name, limit = command.config.group, command.max_groups
    if name not in state.groups:
        if limit is not None and len(state.groups) >= limit:
            return EntryRefused(f"there are {len(state.groups)} consumer groups: delete one first")
    elif command.only_if_absent:
        return None
    state.groups[name] = command.config
    return None


def _commit_offsets(state: BrokerState, command: CommitOffsets) -> None:
    for name, topic, queue_id, offset in command.offsets:
        if command.as_of is not None and not state.had_topic(topic, command.as_of):
            continue  # the topic was deleted meanwhile, and perhaps created again
        state.offsets.setdefault((name, topic), {})[queue_id] = offset


def _drop_offsets(state: BrokerState, keys: list[tuple[str, str]]) -> None:
    for key in keys:
        del state.offsets[key]


def _topics_changed(state: BrokerState, folded: Folded, at_ms: int) -> None:
    state.topic_changes += 1
    state.topics_changed_ms = max(state.topics_changed_ms, at_ms)
    folded.topics_changed = True
