"""Entries that today's broker never appends: those of older versions, foreign and malformed
ones.
"""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from broker.groups.commands import DeleteGroup, PutGroup
from broker.groups.config import ConsumerGroup
from broker.locks.commands import LockQueues
from broker.log.command_layout import LogCommand
from broker.log.entry import encode_log_command
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.relays.commands import LeadFrom
from broker.retention.commands import KeepLogFrom
from broker.topics.commands import DeleteTopic, PutTopic
from dledger.entry import Body, PositionedBody, PositionedParts
from jepsen_like.chance import Chance
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_record_parts

# Numbers of messages that no client has sent; those of clients are below.
FIRST_RAW_NUMBER = 1 << 40
NUMBER_BYTES = 8
MOST_QUEUES = 3
_PREFIX_BYTES = 8


class RawEntries:
    """Makes entries by chance; `malformed` are bodies that look like commands and are not valid."""

    def __init__(
        self,
        chance: Chance,
        topics: list[str],
        groups: list[str],
        clients: list[str],
        next_offset: Callable[[str, int], int],
    ) -> None:
        self._chance = chance
        self._topics, self._groups, self._clients = topics, groups, clients
        self._next_offset = next_offset
        self._number = FIRST_RAW_NUMBER
        self.malformed: set[bytes] = set()

    def make(self, now_ms: int) -> Body:
        kinds: list[Callable[[int], Body]] = [
            self._older_topic,
            self._older_group,
            self._older_offsets,
            self._locks,
            self._leader,
            self._retention,
            self._foreign,
            self._malformed,
            self._record,
            self._record,
            self._records,
        ]
        return self._chance.choice(kinds)(now_ms)

    def _older_topic(self, now_ms: int) -> bytes:
        topic = self._chance.choice(self._topics)
        if self._chance.happens(0.3):
            # The forms of all versions.
            keeps_ends = now_ms % 3 == 0
            with_locks = keeps_ends or now_ms % 3 == 1
            return encode_log_command(DeleteTopic(topic, now_ms, with_locks, keeps_ends))
        queues = 1 + self._chance.randrange(MOST_QUEUES)
        config = TopicConfig(topic, queues, queues)
        return encode_log_command(PutTopic(config, now_ms, self._chance.happens(0.5)))

    def _older_group(self, _: int) -> bytes:
        group = self._chance.choice(self._groups)
        if self._chance.happens(0.5):
            return encode_log_command(DeleteGroup(group, self._chance.happens(0.5)))
        return encode_log_command(PutGroup(ConsumerGroup(group), self._chance.happens(0.5)))

    def _older_offsets(self, now_ms: int) -> bytes:
        chance = self._chance
        offsets = [
            CommittedOffset(
                chance.choice(self._groups),
                chance.choice(self._topics),
                chance.randrange(MOST_QUEUES),
                chance.randrange(100),
            )
            for _ in range(1 + chance.randrange(3))
        ]
        return encode_log_command(CommitOffsets(offsets, chance.choice((None, now_ms))))

    def _locks(self, now_ms: int) -> bytes:
        """Return a lock with a time of its own: the clock of locks is another one, and leaps."""
        chance = self._chance
        queues = [(chance.choice(self._topics), chance.randrange(MOST_QUEUES))]
        time_ms = now_ms % 1_000_000 + chance.choice((0, 0, 61_000, -5_000))
        group, client = chance.choice(self._groups), chance.choice(self._clients)
        return encode_log_command(LockQueues(group, client, chance.happens(0.7), time_ms, queues))

    def _leader(self, _: int) -> bytes:
        return encode_log_command(LeadFrom(self._chance.choice(("n0", "n1")), "10.0.0.1:10912"))

    def _retention(self, now_ms: int) -> bytes:
        """Return a decision that cannot be carried out: its entry is gone, or does not exist
        yet.
        """
        command = self._chance.choice(
            [KeepLogFrom(0, 0, now_ms), KeepLogFrom(1 << 30, 1 << 40, now_ms)]
        )
        return encode_log_command(command)

    def _foreign(self, _: int) -> bytes:
        # The first four bytes are not zero, unlike those of the tier's own appends.
        return b"\x7f" + self._chance.randbytes(self._chance.randrange(3, 40))

    def _malformed(self, now_ms: int) -> bytes:
        chance, topic = self._chance, self._chance.choice(self._topics)
        commands: list[LogCommand] = [
            DeleteTopic(topic, now_ms, with_locks=True),
            PutTopic(TopicConfig(topic, 1, 1), now_ms),
        ]
        good = bytearray(encode_log_command(chance.choice(commands)))
        how = chance.randrange(4)
        if how == 0:
            good[3] ^= 1  # its length
        elif how == 1:
            del good[-1]
            good[:4] = len(good).to_bytes(4, "big")
        elif how == 2:
            good[_PREFIX_BYTES:] = msgpack.packb([1, ["../" + topic, 1, 1, 6, "", 0, False, {}], 0])
            good[:4] = len(good).to_bytes(4, "big")
        else:
            good[_PREFIX_BYTES:] = msgpack.packb([2, 7, topic, topic])
            good[:4] = len(good).to_bytes(4, "big")
        body = bytes(good)
        self.malformed.add(body)
        return body

    def _record(self, now_ms: int) -> Body:
        """Return a message at a place that may be wrong, in a topic that may not exist."""
        chance = self._chance
        head, tail = self._out_of_place(now_ms)
        if chance.happens(0.2):
            return head + chance.randbytes(8) + tail  # it names a wrong position
        if chance.happens(0.1):
            body = head + bytes(8) + tail[:-3]
            self.malformed.add(body)
            return body
        return PositionedBody(head, tail)

    def _records(self, now_ms: int) -> Body:
        """Return several such messages in one entry, maybe in a log whose format has none."""
        count = 2 + self._chance.randrange(3)
        return PositionedParts(tuple(self._out_of_place(now_ms) for _ in range(count)))

    def _out_of_place(self, now_ms: int) -> PositionedBody:
        """Return a message ahead of its queue, or one with the offset of an earlier message."""
        chance = self._chance
        topic, queue_id = chance.choice(self._topics), chance.randrange(MOST_QUEUES)
        following = self._next_offset(topic, queue_id)
        offset = following + chance.choice((-2, -1, -1, 2, 5, 50))
        if offset < 0:
            offset = following + 2
        self._number += 1
        record = MessageRecord(
            topic,
            self._number.to_bytes(NUMBER_BYTES, "big"),
            queue_id=queue_id,
            queue_offset=offset,
            store_timestamp=now_ms,
        )
        return PositionedBody(*encode_record_parts(record))
