"""The log of a broker that the rows read, written by the project's own store."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from broker.config import DEFAULT_SNAPSHOTS
from broker.features import REGISTRY
from broker.formats.commands import RaiseFormat
from broker.log.entry import RUNS_VERSION, encode_log_command
from broker.machine import BrokerMachine
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.store.consume_queues import ConsumeQueues
from broker.topics.commands import PutTopic
from dledger.core.hard_state import HardState
from dledger.entry import Body, PositionedBody
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from remoting.bodies.topic_config import TopicConfig
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, encode_record_parts

TOPICS: Final = ("orders", "payments", "clicks", "logs")
RARE_TOPIC: Final = "alerts"  # of so many messages one
_RARE: Final = 10_000
QUEUES: Final = 4
BODY_BYTES: Final = 256
KEYS: Final = 5000
FIRST_MS: Final = 1_700_000_000_000
# Entries that the store gets at a time; and how often a group says how far it is.
_APPENDED: Final = 500
_COMMITS_EVERY: Final = 100
_SEGMENT_BYTES: Final = 64 * 1024 * 1024


def write_message_log(
    folder: Path, messages: int, on_progress: Callable[[int], None], group: str = "bench"
) -> None:
    """Write the log and the consume queues of a broker.

    It has messages of 256 random bytes in four topics of four queues, a few in another topic, and a
    group whose offsets are 50 messages behind.
    """
    config = StoreConfig(segment_bytes=_SEGMENT_BYTES, spare_segments=0)
    store = open_store(OsDisk(), str(folder), config, group, "n0")
    machine = BrokerMachine(ConsumeQueues(folder / "consumequeue"), REGISTRY)
    try:
        pending: list[Body] = []
        saved = 0
        for done, body in enumerate(_bodies(messages)):
            pending.append(body)
            if len(pending) == _APPENDED:
                machine.apply(store.append(1, 1, pending).entries)
                pending = []
                on_progress(done)
                if done - saved >= DEFAULT_SNAPSHOTS.every_entries:
                    machine.queues.sync_due(machine.state.log_end).run()
                    saved = done
        if pending:
            machine.apply(store.append(1, 1, pending).entries)
        store.begin_sync(HardState(1, None, store.last_index)).run()
        store.note_committed(store.last_index)
        store.save_committed()
    finally:
        machine.close()
        store.close()


def _bodies(messages: int) -> Iterator[Body]:
    chance = random.Random(1)
    ends: Counter[tuple[str, int]] = Counter()
    yield encode_log_command(RaiseFormat(RUNS_VERSION))
    for topic in (*TOPICS, RARE_TOPIC):
        yield encode_log_command(PutTopic(TopicConfig(topic), FIRST_MS))
    for number in range(messages):
        topic, queue = chance.choice(TOPICS), chance.randrange(QUEUES)
        if number % _RARE == _RARE - 1:
            topic = RARE_TOPIC
        stored_ms = FIRST_MS + number // 2
        pairs = {
            "KEYS": f"key{chance.randrange(KEYS)}",
            "UNIQ_KEY": f"{number:032X}",
            "TAGS": "t",
            "WAIT": "true",
        }
        record = MessageRecord(
            topic,
            chance.randbytes(BODY_BYTES),
            queue_id=queue,
            queue_offset=ends[topic, queue],
            born_timestamp=stored_ms - chance.randrange(20),
            store_timestamp=stored_ms,
            store_port=10911,
            properties=encode_properties(pairs),
        )
        ends[topic, queue] += 1
        yield PositionedBody(*encode_record_parts(record))
        if number % _COMMITS_EVERY == _COMMITS_EVERY - 1:
            offsets = [CommittedOffset("g", *key, max(end - 50, 0)) for key, end in ends.items()]
            yield encode_log_command(CommitOffsets(offsets, stored_ms, 0))
