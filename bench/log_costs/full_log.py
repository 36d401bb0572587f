"""Folds a broker's state that is as full as its limits allow, or a part of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from broker.access.commands import (
    MAX_RULES,
    MAX_RULES_OF_USER,
    PutRules,
    PutUser,
    SealedSecret,
)
from broker.access.rules import Rule
from broker.delay.commands import Delay
from broker.features import REGISTRY
from broker.filters.commands import PutFilter
from broker.formats.commands import RaiseFormat
from broker.groups.commands import Forbid, PutGroup
from broker.groups.config import ConsumerGroup
from broker.limits import MAX_QUEUES_PER_TOPIC, BrokerLimits
from broker.lite.commands import LiteGiven, PopLite, PutLite
from broker.locks.commands import LockQueues
from broker.log.command_layout import LogCommand
from broker.log.entry import FORMAT_VERSION, encode_log_command
from broker.log.folded import EntryRefused
from broker.machine import BrokerMachine
from broker.messages.passed_over import MAX_PASSED_OVER_ENTRIES
from broker.messages.state import MESSAGES
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.pop.commands import Pop
from broker.pop.limits import MAX_IN_FLIGHT_PER_QUEUE, MAX_QUEUES
from broker.resets.commands import ResetOffsets
from broker.store.consume_queue_disk import OS_DISK, ConsumeQueueDisk
from broker.store.consume_queues import ConsumeQueues
from broker.topics.commands import PutTopic
from broker.topics.names import GIVEN_UP_TOPIC, HALF_TOPIC, TIMER_TOPIC, dead_letter_topic
from broker.transactions.commands import Prepare
from dledger import HEADER_BYTES, Entry
from dledger.entry import Magic
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_record

# Names in the costliest commands.
TOPIC: Final = "t0"  # all groups have something in it
GROUP: Final = "g0"  # it has something in all topics
WIDE: Final = "wide"  # it has the most queues, each with a message
EMPTY: Final = "empty"  # it has as many queues, without messages
LITE: Final = "lite"  # it has lite topics, all of which GROUP has in flight
DEAD: Final = dead_letter_topic(GROUP)

AT_MS: Final = 1_700_000_000_000
DUE_MS: Final = AT_MS + 3_600_000

_LIMITS: Final = BrokerLimits()
_ROWS: Final = 500

T = TypeVar("T")


def user_rules(count: int, prefix: str = "t") -> list[Rule]:
    """Return rules for so many topics."""
    return [Rule(f"Topic:{prefix}{number}", "Pub,Sub", "", "Allow") for number in range(count)]


@dataclass(frozen=True)
class Sizes:
    """How many there are of each. The defaults are what the limits allow.

    `delayed`, `lite`: the limits are larger by far; more of them make no entry dearer.
    """

    topics: int = _LIMITS.max_topics
    groups: int = _LIMITS.max_groups
    queues: int = MAX_QUEUES_PER_TOPIC
    offset_tables: int = _LIMITS.max_offset_tables
    locks: int = _LIMITS.max_locks
    filters: int = _LIMITS.max_filters
    transactions: int = _LIMITS.max_open_transactions
    delayed: int = 100_000
    pop_queues: int = MAX_QUEUES
    flying: int = MAX_IN_FLIGHT_PER_QUEUE
    lite: int = 200_000
    users: int = MAX_RULES // MAX_RULES_OF_USER
    rules_of_user: int = MAX_RULES_OF_USER

    @classmethod
    def times(cls, count: int) -> Sizes:
        """Multiply all numbers except those of one topic or queue."""
        return cls(
            topics=count,
            groups=count,
            queues=256,
            users=count,
            rules_of_user=16,
            offset_tables=2 * count,
            locks=2 * count,
            filters=count,
            transactions=count,
            delayed=count,
            pop_queues=2 * count,
            flying=count,
            lite=40 * count,
        )


class FullLog:
    """The machine of a member that has folded a log, and what goes on with it.

    Args:
        folder: for the files of the machine.
        sizes: how full it is.
        disk: has the files of consume queues.

    Attributes:
        machine: it has folded all.
        halves: where the messages of open transactions lie.
        delayed: where delayed messages lie.
        dead: where the dead letters lie.
    """

    def __init__(self, folder: Path, sizes: Sizes, disk: ConsumeQueueDisk = OS_DISK) -> None:
        self.sizes = sizes
        queues = ConsumeQueues(folder / "consumequeue", disk=disk)
        self.machine = BrokerMachine(queues, REGISTRY, str(folder / "state"))
        self.halves: list[int] = []
        self.delayed: list[int] = []
        self.dead: list[int] = []
        self._index = 0
        self._pos = 0
        self._ends: dict[tuple[str, int], int] = {}

    def entry(self, body: bytes) -> Entry:
        entry = Entry(self._index, 1, self._pos, Magic.NORMAL, body)
        self._index += 1
        self._pos += HEADER_BYTES + len(body)
        return entry

    def record(self, topic: str, queue_id: int, attached: LogCommand | None = None) -> Entry:
        """Return the next entry: one message with a command."""
        behind = b"" if attached is None else encode_log_command(attached)
        return self.entry(self._record(topic, queue_id, 0) + behind)

    def records(self, topic: str, queue_ids: Iterable[int]) -> Entry:
        body = bytearray()
        for queue_id in queue_ids:
            body += self._record(topic, queue_id, len(body))
        return self.entry(bytes(body))

    def command(self, command: LogCommand) -> Entry:
        return self.entry(encode_log_command(command))

    @property
    def end(self) -> int:
        return self._pos

    @property
    def next_index(self) -> int:
        return self._index

    def apply(self, entries: Sequence[Entry]) -> None:
        refused = [one for one in self.machine.apply(entries) if isinstance(one, EntryRefused)]
        if refused:
            raise AssertionError(refused[0].reason)

    def fill(self) -> None:
        for part in parts(self._all(), _ROWS):
            self.apply(part)
        passed_over = min(MAX_PASSED_OVER_ENTRIES, 2 * self.sizes.transactions)
        self.machine.state[MESSAGES].passed_over.indexes += range(-passed_over, 0)

    def _record(self, topic: str, queue_id: int, before: int) -> bytes:
        key = topic, queue_id
        offset = self._ends.get(key, 0)
        self._ends[key] = offset + 1
        return encode_record(
            MessageRecord(
                topic,
                b"x",
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=self._pos + HEADER_BYTES + before,
                store_timestamp=AT_MS,
            )
        )

    def _all(self) -> Iterator[Entry]:
        sizes = self.sizes
        yield self.command(RaiseFormat(FORMAT_VERSION))
        for topic in (WIDE, EMPTY):
            yield self.command(PutTopic(TopicConfig(topic, sizes.queues, sizes.queues), AT_MS))
        own = (LITE, HALF_TOPIC, TIMER_TOPIC, GIVEN_UP_TOPIC, DEAD)
        for topic in (*own, *(f"t{number}" for number in range(sizes.topics))):
            yield self.command(PutTopic(TopicConfig(topic, 1, 1), AT_MS, False, 1 << 30))
        for number in range(sizes.groups):
            yield self.command(PutGroup(ConsumerGroup(f"g{number}")))
        yield from self._users()
        yield from self._of_groups_and_topics()
        yield from self._messages()

    def _users(self) -> Iterator[Entry]:
        secret = SealedSecret("s" * 200)
        for number in range(self.sizes.users):
            name = f"u{number}"
            yield self.command(PutUser(name, secret, number == 0, True, None))
            yield self.command(PutRules(name, "Custom", user_rules(self.sizes.rules_of_user)))

    def _of_groups_and_topics(self) -> Iterator[Entry]:
        sizes, end = self.sizes, self._pos
        offsets = [CommittedOffset(*pair, 0, 1) for pair in self._pairs(sizes.offset_tables)]
        offsets += [CommittedOffset(GROUP, WIDE, number, 1) for number in range(sizes.queues)]
        for part in parts(offsets, _ROWS):
            yield self.command(CommitOffsets(part, AT_MS, end))
        for group, topic in self._pairs(sizes.groups):
            yield self.command(ResetOffsets(group, topic, {0: 1}, AT_MS, self._pos))
            yield self.command(Forbid(group, topic, True, 1 << 30))
        for group, topic in self._pairs(sizes.locks):
            yield self.command(LockQueues(group, "c", True, 1, [(topic, 0)]))
        for group, topic in self._pairs(sizes.filters):
            yield self.command(PutFilter(group, topic, "a > 1", 1, sizes.filters))
        for group, topic in self._pairs(sizes.pop_queues):
            yield self._pop(group, topic, 0, range(1))
        yield self._pop(GROUP, WIDE, 0, range(sizes.flying))

    def _pop(self, group: str, topic: str, first: int, offsets: range) -> Entry:
        times = AT_MS, AT_MS + 60_000
        given = tuple(offsets)
        return self.command(
            Pop(group, topic, 0, *times, first, offsets.stop, given, None, True, self._pos)
        )

    def _pairs(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield pairs of group and topic: half of them have TOPIC, the other half GROUP."""
        sizes = self.sizes
        crowd = min(count // 2, sizes.groups)
        yield from ((f"g{number}", TOPIC) for number in range(crowd))
        alone = min(count - crowd, sizes.topics - 1)
        yield from ((GROUP, f"t{number}") for number in range(1, 1 + alone))
        for number in range(count - crowd - alone):
            round_, at = divmod(number, sizes.topics - 1)
            yield f"g{1 + round_}", f"t{1 + at}"

    def _messages(self) -> Iterator[Entry]:
        sizes = self.sizes
        for _ in range(sizes.transactions):
            self.halves.append(self._pos + HEADER_BYTES)
            yield self.record(HALF_TOPIC, 0, Prepare("producers", DUE_MS))
        for _ in range(sizes.delayed):
            self.delayed.append(self._pos + HEADER_BYTES)
            yield self.record(TIMER_TOPIC, 0, Delay(DUE_MS))
        for _ in range(_ROWS):
            self.dead.append(self._pos + HEADER_BYTES)
            yield self.record(DEAD, 0)
        for queue_id in range(sizes.queues):
            yield self.record(WIDE, queue_id)
        for number in range(sizes.lite):
            yield self.record(LITE, 0, PutLite(f"s{number}", 1 << 30, 1 << 30))
        for numbers in parts(range(sizes.lite), 32):
            given = [LiteGiven(f"s{number}", 0, 1, 0, True) for number in numbers]
            yield self.command(PopLite(GROUP, LITE, AT_MS, DUE_MS, "", given, self._pos))


def parts(of: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield so many at a time, and at last what is left."""
    part: list[T] = []
    for one in of:
        part.append(one)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
