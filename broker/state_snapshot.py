"""The folded state as chunks of bytes, for the snapshots of `dledger`.

Each chunk is a msgpack array `[what, rows]`: the numbers first, then topics, groups, offsets,
locks and queue ends, some hundred rows a chunk. Capturing copies dictionaries; packing comes
later, in another thread.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgpack

from broker.errors import SnapshotUnreadable
from broker.log_entry import read_group, read_topic, topic_members
from broker.queue_locks import LockOwner
from broker.state import BrokerState
from broker.time_marks import TimeMarks

# The name of this format. Another one is not read: see docs/broker.md.
STATE_FORMAT: Final = "broker/1"

# With the longest names and 1024 queues a row is about 20 KiB, so a chunk stays below 16 MiB.
ROWS_PER_CHUNK: Final = 500

_NUMBERS: Final = (
    "topic_changes",
    "topics_changed_ms",
    "store_timestamp_ms",
    "messages",
    "log_end",
    "refused_entries",
    "kept_from",
    "kept_position",
)


def captured(state: BrokerState) -> Iterator[bytes]:
    """The chunks of the state as it is at the call, whatever is folded while they are taken."""
    marks = state.time_marks
    numbers = [[name, getattr(state, name)] for name in _NUMBERS]
    times = [list(marks.times_ms), list(marks.indexes), marks.next_ms]
    clock = [state.locks.time_ms, state.locks.swept_ms]
    owners = dict(state.locks.owners)
    topics, groups = dict(state.topics), dict(state.groups)
    created_at = dict(state.created_at)
    offsets = {key: dict(table) for key, table in state.offsets.items()}
    ends = {topic: dict(table) for topic, table in state.queue_ends.items()}

    def chunks() -> Iterator[bytes]:
        yield _packed("numbers", numbers)
        yield _packed("times", times)
        yield from _in_chunks("topics", (topic_members(one) for one in topics.values()))
        yield from _in_chunks("created", (list(row) for row in created_at.items()))
        yield from _in_chunks("groups", (one.as_dict() for one in groups.values()))
        yield from _in_chunks("offsets", ([*key, table] for key, table in offsets.items()))
        yield _packed("lock clock", clock)
        yield from _in_chunks("locks", ([*key, *owner] for key, owner in owners.items()))
        yield from _in_chunks("ends", ([topic, table] for topic, table in ends.items()))

    return chunks()


def restored(chunks: Iterable[bytes]) -> BrokerState:
    """The state that was captured. Raises SnapshotUnreadable."""
    state = BrokerState(topics={})
    for chunk in chunks:
        try:
            what, rows = msgpack.unpackb(chunk, strict_map_key=False)
            _take(state, what, rows)
        except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as error:
            raise SnapshotUnreadable(f"{error!r:.200}") from error
    return state


def _in_chunks(what: str, rows: Iterator[object]) -> Iterator[bytes]:
    while some := list(islice(rows, ROWS_PER_CHUNK)):
        yield _packed(what, some)


def _packed(what: str, rows: object) -> bytes:
    packed: bytes = msgpack.packb([what, rows], use_bin_type=True)
    return packed


def _take(state: BrokerState, what: str, rows: list[Any]) -> None:
    """Put the rows of one chunk into the state."""
    match what:
        case "numbers":
            for name, value in rows:
                if name not in _NUMBERS:
                    raise ValueError(f"a number {name!r:.40}")
                setattr(state, name, int(value))
        case "times":
            times_ms, indexes, next_ms = rows
            state.time_marks = TimeMarks(list(times_ms), list(indexes), int(next_ms))
        case "topics":
            state.topics.update((topic.topic, topic) for topic in map(read_topic, rows))
        case "created":
            state.created_at.update((topic, position) for topic, position in rows)
        case "groups":
            state.groups.update((group.group, group) for group in map(read_group, rows))
        case "offsets":
            state.offsets.update(((group, topic), table) for group, topic, table in rows)
        case "ends":
            state.queue_ends.update((topic, table) for topic, table in rows)
        case "lock clock":
            state.locks.time_ms, state.locks.swept_ms = map(int, rows)
        case "locks":
            for group, topic, queue_id, client_id, locked_ms in rows:
                state.locks.owners[group, topic, queue_id] = LockOwner(client_id, locked_ms)
        case _:
            raise ValueError(f"rows of {what!r:.40}")
