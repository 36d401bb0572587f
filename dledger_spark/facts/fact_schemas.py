"""The columns of the tables of facts, whose rows each come from one entry, and never change.

Every table has `raft_group` (null for a log of Java's) and `index`, the entry; so a table is
complete up to an index. `time` is the leader's wall clock if the command has it, else the store
time of the newest message before, which in brokers never decreases; null before the first message.
"""

from typing import Final

import pyarrow as pa

from dledger_spark.schema import ENTRY_SCHEMA, MESSAGE_SCHEMA, TIME

RAFT_GROUP: Final = pa.field("raft_group", pa.string())
_HEAD: Final = [RAFT_GROUP, pa.field("index", pa.int64()), pa.field("time", TIME)]
# How often a topic of this name was deleted: the queues of one that is made again begin at 0.
_LIFE: Final = pa.field("topic_life", pa.int32())
_QUEUE: Final = [
    pa.field("consumer_group", pa.string()),
    pa.field("topic", pa.string()),
    _LIFE,
    pa.field("queue", pa.int32()),
    pa.field("offset", pa.int64()),
]


FACTS: Final[dict[str, pa.Schema]] = {
    # Bodies are in the table of messages; commands are spelt out in theirs.
    "entries": pa.schema([field for field in ENTRY_SCHEMA if field.name != "body"]),
    "messages": MESSAGE_SCHEMA.append(_LIFE),
    "commands": pa.schema(
        [
            *_HEAD,
            ("term", pa.int64()),
            ("kind", pa.int32()),
            ("name", pa.string()),
            ("version", pa.int32()),
            ("attached", pa.bool_()),  # whether it follows a record
            ("topic", pa.string()),  # null if it has no topic, or several
            ("consumer_group", pa.string()),  # null if it has no group, or several
            ("detail", pa.string()),  # its fields, as JSON
        ]
    ),
    "consumer_progress": pa.schema(
        [
            *_HEAD,
            *_QUEUE,  # offset: the next message to consume; null: deleted with its topic
            ("source", pa.string()),  # committed, popped, reset, forgotten
        ]
    ),
    "pop_events": pa.schema(
        [
            *_HEAD,
            *_QUEUE,
            ("event", pa.string()),  # given, acknowledged, hidden, buried
            ("visible_time", TIME),  # when it is redelivered, if nothing happens before
        ]
    ),
    # What a group that pops has of a queue, after each command that concerns them. Messages from
    # `next_offset` on were never given, and `unacknowledged` ones before it were given and are
    # neither acknowledged nor buried; both null: the group pops no more, and its progress counts.
    "pop_progress": pa.schema(
        [
            *_HEAD,
            *_QUEUE,  # offset: the first message that is not acknowledged
            ("next_offset", pa.int64()),
            ("unacknowledged", pa.int64()),
        ]
    ),
    "transaction_events": pa.schema(
        [
            *_HEAD,
            ("position", pa.int64()),  # of the half message, when it was first stored
            # prepared, checked, committed, rolled back, given up, resumed, moved
            ("event", pa.string()),
            ("producer_group", pa.string()),  # only in the first event
        ]
    ),
    "delay_events": pa.schema(
        [
            *_HEAD,
            ("position", pa.int64()),  # of the delayed message, when it was first stored
            ("event", pa.string()),  # waits, delivered, dropped, moved
            ("due_time", TIME),  # only in the first event
        ]
    ),
    "redrives": pa.schema(
        [
            *_HEAD,
            ("topic", pa.string()),  # of the dead letter, with queue and offset
            _LIFE,
            ("queue", pa.int32()),
            ("offset", pa.int64()),
        ]
    ),
    "lost_entries": pa.schema(
        [
            *_HEAD[:2],  # index: of the first one
            ("last", pa.int64()),
            ("problem", pa.string()),  # why they are not in the tables
        ]
    ),
}

# It is committed behind all others, so its end counts for all.
LAST: Final = "entries"
