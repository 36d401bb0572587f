"""The meaning of a broker's log, by its documented format and by no code of the broker.

The model folds one entry at a time, and remembers the messages of every queue that ever was. So it
gives the right state of any member at any entry.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from dledger.entry import Entry, Magic
from jepsen_like.simulation.invariants import InvariantViolated

UNIT = struct.Struct(">qiq")
UNIT_BYTES = UNIT.size

RECORD_MAGIC = 0xDAA320A7
COMMAND_MARK = b"DLB"
GUARDED = 3  # the first version with limits, positions of offsets, and deletions of locks
WITH_RUNS = 5  # the first format with several records in an entry
RENEWALS = 8  # the first version that renews a delivery without a new handle
INCARNATIONS = 6  # the first version of deletions that keep where queues ended
LOCK_MS = 60_000
# Entries that a leader may have proposed before it knew that the format is raised.
MOST_UNDER_WAY = 30
TAGS = b"TAGS\x01"

PUT_TOPIC, DELETE_TOPIC, PUT_GROUP, DELETE_GROUP = 1, 2, 3, 4
COMMIT_OFFSETS, KEEP_LOG_FROM, LOCK_QUEUES, LEAD_FROM = 5, 6, 7, 8
RAISE_FORMAT, DELAY, DELIVER, MOVE_DELAYED, DROP_DELAYED = 9, 10, 11, 12, 13
POP, ACK_POPPED, HIDE_POPPED, BURY_POPPED = 23, 24, 25, 26
PREPARE, COMMIT, ROLLBACK, CHECKED, GIVE_UP, MOVE_HALF = 14, 15, 16, 17, 18, 19
CHANGE_SETTINGS, RESUME, REDRIVE = 30, 31, 34
# By command: the topics that its message waits in. No client reads them.
WAITING_ROOMS = {
    DELAY: ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"),
    MOVE_DELAYED: ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"),
    PREPARE: ("RMQ_SYS_TRANS_HALF_TOPIC",),
    MOVE_HALF: ("RMQ_SYS_TRANS_HALF_TOPIC",),
    RESUME: ("RMQ_SYS_TRANS_HALF_TOPIC",),
    GIVE_UP: ("TRANS_CHECK_MAX_TIME_TOPIC",),
}

# A message there stands in for a copy that cannot be stored, such as a dead letter when there are
# too many topics. It names the place of the original.
UNDELIVERED = "rmq_sys_undelivered"
ORIGINAL = b"DLQ_ORIGIN_MESSAGE_ID\x01"
# The property with the topic that a waiting message goes to.
REAL_TOPIC = b"REAL_TOPIC\x01"

# Topics of messages that failed: each message is a copy of one in another queue.
COPIES = ("%RETRY%", "%DLQ%", UNDELIVERED)

QueueKey = tuple[str, int]  # topic, queue id
OffsetKey = tuple[str, str, int]  # group, topic, queue id
# A topic, the entry that created it, and a queue id: unlike the queues before it of that name.
IncarnationKey = tuple[str, int, int]
# A topic, and the entry that created it; None if it does not exist.
Target = tuple[str, int | None]


class Stored(NamedTuple):
    """A message that is in a queue."""

    topic: str
    queue_id: int
    offset: int
    position: int
    entry: int


class _Record(NamedTuple):
    """A record in the body of an entry, from `begin` to `end`."""

    begin: int
    end: int
    topic: str
    queue_id: int
    offset: int
    position: int
    number: int
    properties: bytes


class Delayed(NamedTuple):
    """A delayed message.

    Attributes:
        due_ms: when it may be delivered at the earliest.
        target: the topic that it was sent to.
    """

    number: int
    due_ms: int
    target: Target


class Half(NamedTuple):
    """A message whose transaction is open.

    Attributes:
        at: its position in the log.
        due_ms: when its producer is asked.
        checks: how often its producer was asked.
        target: the topic that it was sent to.
    """

    number: int
    at: int
    due_ms: int
    checks: int
    target: Target


@dataclass
class Popped:
    """A queue from which a group pops.

    Attributes:
        next: the first offset that was never given.
        attempt: of the last pop.
        out: by offset of an in-flight message: since when, until when (0: acknowledged in order,
            behind one that is not), how often given, whether in order, how often
                behind another, and whether it was suspended.
    """

    next: int
    attempt: str = ""
    out: dict[int, tuple[int, int, int, bool, int, bool]] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """The offset before which everything is acknowledged."""
        return min(self.out, default=self.next)


class LogModel:
    """The meaning of the entries so far.

    Args:
        first_topics: the topics of an empty log: configurations as the log has them, by name.
        malformed: bodies that look like commands and are not valid; they change nothing.
        max_checks: after so many questions a transaction may be given up, if no operator says less.
        only_leaders_delete: whether topics are deleted by leaders alone. Otherwise a leader may be
            giving a deleted topic a message that has waited.
        offset_taken: told of each committed offset that counts: its key, the offset, and the
            entry that made the topic.
        pop_taken: told of each pop that counts: its key, where it began and ended, and the
            offsets that it gave.

    Attributes:
        topics: configurations by name.
        created_at: the position of the entry that created a topic; of version 3 and later.
        begins: by topic: the first offset of its queues, if that is not 0.
        ended_topics: by the name of a deleted topic: where the longest of its queues ended, if it
            had any messages. The broker forgets the oldest of very many.
        ends: by queue: the offset of its next message.
        offsets: by group, topic and queue id.
        resets: the same, of groups that were moved: no other offset that they commit counts.
        groups: configurations by name.
        locks: by group, topic and queue id: the client, and since when.
        kept: the first entry of the log to keep, and its position.
        leader: member and address of the last one that said that it leads.
        messages: how many there were.
        passed_over: the entries to keep whose records are not taken as messages.
        stored: by the number in its body: the message that is in a queue, or was.
        touched: by entry: the queues that it brought messages to.
        format: the format that the log was raised to.
        waiting: by position: the delayed messages that wait.
        delayed: the numbers of all delayed messages.
        delivered: how many of them were delivered.
        dropped: the numbers of those that will never be delivered.
        halves: by the first position of their messages: the transactions that are open.
        pops: by group, topic and queue id: the in-flight messages.
        copies: by number: how often a message came to a retry or dead-letter topic, or another one
            stands in for it there.
        ended: by number of the message of an ended transaction: the kind of command that ended it.
        given_up: the positions of the messages of transactions that were given up.
        resumed: those of them whose transactions were opened once more.
        settings: the changed settings, by name.
        setting_changes: every change that there was: name and value.
        users: the names of users.
        rule_marks: the addresses in every rule that there was.
        redriven: how many dead letters were delivered once more.
    """

    def __init__(
        self,
        first_topics: dict[str, list[object]],
        malformed: Collection[bytes],
        max_checks: int,
        only_leaders_delete: bool,
        offset_taken: Callable[[OffsetKey, int, int], None],
        pop_taken: Callable[[OffsetKey, int, int, Sequence[int]], None],
    ) -> None:
        self._malformed = malformed
        self._max_checks = max_checks
        self._only_leaders_delete = only_leaders_delete
        self._offset_taken = offset_taken
        self._pop_taken = pop_taken
        self.topics = dict(first_topics)
        self.created_at: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self.ended_topics: dict[str, int] = {}
        self.ends: dict[QueueKey, int] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.resets: dict[tuple[str, str, int], int] = {}
        self.groups: dict[str, dict[str, object]] = {}
        self.locks: dict[tuple[str, str, int], tuple[str, int]] = {}
        self._lock_time_ms = self._swept_ms = 0
        self.kept = (0, 0)
        self.leader = ("", "")
        self.messages = 0
        self.passed_over: list[int] = []
        self.stored: dict[int, Stored] = {}
        self.touched: list[set[QueueKey]] = []
        self.format = 1
        self.waiting: dict[int, Delayed] = {}
        self.delayed: set[int] = set()
        self.delivered = 0
        self.dropped: set[int] = set()
        self.halves: dict[int, Half] = {}
        self.ended: dict[int, int] = {}
        self.copies: Counter[int] = Counter()
        self.pops: dict[tuple[str, str, int], Popped] = {}
        self.given_up: list[int] = []
        self._given_up_targets: dict[int, Target] = {}
        self.resumed: set[int] = set()
        self.settings: dict[str, str] = {}
        self.setting_changes: set[tuple[str, str | None]] = set()
        self.users: set[str] = set()
        self.rule_marks: set[str] = set()
        self.redriven = 0
        self._taken_letters: dict[QueueKey, set[int]] = {}
        self._raised_at = 0  # the entry that raised the format to that of incarnations
        # By name of a topic that was deleted in an earlier format: the offset after its last one.
        self._earlier_ends: Counter[str] = Counter()
        # By group, topic and queue id: where groups were moved; None in an earlier format.
        self._moves: dict[OffsetKey, tuple[int, int] | None] = {}
        self._births: dict[str, list[int]] = {topic: [-1] for topic in first_topics}
        self._units: dict[IncarnationKey, bytearray] = {}
        self._numbers: dict[int, int] = {}  # of messages, by the positions of their records

    def units(self, topic: str, queue_id: int, index: int) -> bytes:
        """Return the units of a queue of a topic as it exists at an entry; later messages
        included.
        """
        born = self.born(topic, index)
        return bytes(self._units.get((topic, born, queue_id), b""))

    def born(self, topic: str, index: int) -> int:
        """Return the entry that made a topic as it exists at an entry."""
        births = self._births[topic]
        return births[bisect_right(births, index) - 1]

    def generation(self, key: OffsetKey) -> tuple[int, int] | None:
        """Return since when and from which offset on the log counts a group's consumption of a
        queue.

        None if the log does not tell what is older.
        """
        topic = key[1]
        begin = self.begins.get(topic, 0)
        if topic not in self.created_at or begin < self._earlier_ends[topic]:
            return None
        return self._moves.get(key, (self.created_at[topic], begin))

    def taken_letters(self, topic: str, queue_id: int) -> set[int]:
        """Return the offsets of the dead letters that were redriven, or that retention took."""
        return self._taken_letters.get((topic, queue_id), set())

    def fold(self, entry: Entry) -> None:
        """Take the next entry of the log."""
        self.touched.append(set())
        body = entry.body
        if entry.magic != Magic.NORMAL:
            return
        is_malformed = body in self._malformed
        if body[4:8] == RECORD_MAGIC.to_bytes(4, "big"):
            before = self.messages
            if not is_malformed:
                self._record(entry)
            if self.messages == before:
                self.passed_over.append(entry.index)
        elif body[4:7] == COMMAND_MARK and not is_malformed:
            kind, *members = msgpack.unpackb(body[8:])
            self._command(entry, body[7], kind, members)

    # --- messages -------------------------------------------------------------------------------

    def _record(self, entry: Entry) -> None:
        records = [self._meant(record) for record in _records_of(entry)]
        if len(records) > 1:
            self._records(entry, records)
        elif self._fits(records, entry.body_pos):
            self._one_record(entry, records[0])

    def _meant(self, record: _Record) -> _Record:
        """Return a record with the number of the message that it stands in for, if it does."""
        if record.topic != UNDELIVERED:
            return record
        (original,) = re.findall(ORIGINAL + rb"[0-9A-F]{16}([0-9A-F]{16})\x02", record.properties)
        return record._replace(number=self._numbers[int(original, 16)])

    def _records(self, entry: Entry, records: list[_Record]) -> None:
        """Take all of several records in one entry, or none."""
        is_whole = records[-1].end == len(entry.body)
        if self.format >= WITH_RUNS and is_whole and self._fits(records, entry.body_pos):
            for record in records:
                self._take(entry, record)

    def _fits(self, records: list[_Record], body_pos: int) -> bool:
        """Return whether each record is the next one of its queue, and names its own position."""
        ends: dict[QueueKey, int] = {}
        for record in records:
            key = (record.topic, record.queue_id)
            end = ends.get(key, self.ends.get(key, self.begins.get(record.topic, 0)))
            if record.topic not in self.topics or record.offset != end:
                return False
            if record.position != body_pos + record.begin:
                return False
            ends[key] = end + 1
        return True

    def _one_record(self, entry: Entry, record: _Record) -> None:
        """Take a record, maybe with a command behind it."""
        behind = entry.body[record.end :]
        if not behind:
            self._take(entry, record)
            return
        if behind[4:7] != COMMAND_MARK:
            return
        kind, *members = msgpack.unpackb(behind[8:])
        if not self._behind(entry, record, kind, members):
            return
        if record.topic not in WAITING_ROOMS.get(kind, (record.topic,)):
            raise InvariantViolated(
                "nobody sees a message before its time",
                f"message {record.number} waits in topic {record.topic}, with a command of kind "
                f"{kind}",
            )
        is_waiting = kind in WAITING_ROOMS or (kind == COMMIT and members[1] > 0)
        self._take(entry, record, is_another=is_waiting or kind == REDRIVE)

    def _take(self, entry: Entry, record: _Record, *, is_another: bool = False) -> None:
        """Add a message to its queue; `is_another`: not where its producer sent it."""
        topic, queue_id, number = record.topic, record.queue_id, record.number
        key = (topic, queue_id)
        self.ends[key] = record.offset + 1
        self.messages += 1
        self._numbers[record.position] = number
        self.touched[-1].add(key)
        unit = UNIT.pack(record.position, record.end - record.begin, _tags_code(record.properties))
        born = self._births[topic][-1]
        self._units.setdefault((topic, born, queue_id), bytearray()).extend(unit)
        if is_another:
            return
        if topic.startswith(COPIES):
            self.copies[number] += 1
            return
        if number in self.stored:
            raise InvariantViolated(
                "messages are stored once",
                f"{number} is {self.stored[number]} and entry {entry.index}",
            )
        place = (topic, queue_id, record.offset, record.position, entry.index)
        self.stored[number] = Stored(*place)

    def _behind(self, entry: Entry, record: _Record, kind: int, members: list[Any]) -> bool:
        """Carry out a command behind a record; return whether the record is taken with it."""
        number, at = record.number, entry.body_pos
        match kind, members:
            case (10, [due_ms]):
                self._delay(at, Delayed(number, due_ms, self._target(record)))
                return True
            case (11, [position]):
                return self._deliver(entry, record, self.waiting.pop(position, None))
            case (12, [position]):
                waiting = self.waiting.pop(position, None)
                if waiting is None:
                    return False
                self.waiting[at] = waiting
                return True
            case (14, [_group, due_ms]):
                self.halves[at] = Half(number, at, due_ms, 0, self._target(record))
                return True
            case (15, [position, due_ms]):
                half = self.halves.get(position)
                if half is None or not self._end(position, kind, number):
                    return False
                found = self._target(record) if due_ms else self._as_now(record.topic)
                self._goes_to(half.target, found, number)
                if due_ms:
                    self._delay(at, Delayed(number, due_ms, half.target))
                return True
            case (18, [position]):
                half = self.halves.get(position)
                if half is not None and half.checks < self._max_checks:
                    raise InvariantViolated(
                        "transactions are given up after all questions", f"{half} was given up"
                    )
                if half is None or not self._end(position, kind, number):
                    return False
                self.given_up.append(at)
                self._given_up_targets[at] = half.target
                return True
            case (31, [position, _group, due_ms]):
                if position in self.resumed:
                    return False
                self.resumed.add(position)
                target = self._given_up_targets[position]
                self.halves[at] = Half(number, at, due_ms, 0, target)
                del self.ended[number]
                return True
            case (34, letter):
                return self._redrive(*letter)
            case (26, [[*key, offset, popped_ms]]):
                return self._end_popped(tuple(key), offset, popped_ms, is_buried=True)
            case (19, [position]):
                half = self.halves.get(position)
                if half is None:
                    return False
                self.halves[position] = half._replace(at=at)
                return True
            case _:
                raise ValueError(f"a command behind a record that the model does not know: {kind}")

    def _delay(self, position: int, delayed: Delayed) -> None:
        self.waiting[position] = delayed
        self.delayed.add(delayed.number)

    def _deliver(self, entry: Entry, record: _Record, waiting: Delayed | None) -> bool:
        """Deliver a message that waited; return whether it did wait."""
        if waiting is None:
            return False
        (stored_ms,) = struct.unpack_from(">q", entry.body, 56)
        if stored_ms < waiting.due_ms or waiting.number != record.number:
            raise InvariantViolated(
                "delayed messages come when they are due",
                f"{waiting} came as message {record.number} at {stored_ms}",
            )
        self._goes_to(waiting.target, self._as_now(record.topic), record.number)
        self.delivered += 1
        return True

    def _target(self, record: _Record) -> Target:
        """Return the topic that a waiting message goes to."""
        return self._as_now(next(_values(record.properties, REAL_TOPIC)).decode())

    def _as_now(self, topic: str) -> Target:
        return topic, self._births[topic][-1] if topic in self.topics else None

    def _goes_to(self, target: Target, found: Target, number: int) -> None:
        """Check that a message that waited goes to the topic that it was sent to."""
        if self._only_leaders_delete and found not in (target, self._as_now(UNDELIVERED)):
            raise InvariantViolated(
                "what waits goes to the topic that it was sent to",
                f"message {number} was sent to {target}, and goes to {found}",
            )

    def _redrive(self, topic: str, queue_id: int, offset: int, position: int, begin: int) -> bool:
        """Deliver a dead letter once more; return whether it was not delivered so before."""
        if topic not in self.topics or self.created_at.get(topic, -1) >= position:
            return False
        taken = self._taken_letters.get((topic, queue_id), set())
        if offset in taken or offset < begin:
            return False
        self._taken_letters[topic, queue_id] = taken | {offset} | set(range(begin))
        self.redriven += 1
        return True

    def _end(self, position: int, kind: int, number: int | None = None) -> bool:
        """End a transaction; return whether it was open."""
        half = self.halves.pop(position, None)
        if half is None:
            return False
        if number is not None and half.number != number:
            raise InvariantViolated(
                "transactions end with their own messages", f"{half} ended as message {number}"
            )
        self.ended[half.number] = kind
        return True

    # --- commands -------------------------------------------------------------------------------

    def _command(self, entry: Entry, version: int, kind: int, members: list[Any]) -> None:
        match kind, members:
            case (1, [config, _, only_if_absent, *limit]):
                self._put_topic(entry, config, only_if_absent, limit)
            case (2, [topic, _]):
                self._delete_topic(
                    entry, topic, with_locks=version >= GUARDED, keeps_ends=version >= INCARNATIONS
                )
            case (3, [config, only_if_absent, *limit]):
                self._put_group(config, only_if_absent, limit)
            case (4, [group, with_offsets]):
                self._delete_group(group, with_offsets, with_locks=version >= GUARDED)
            case (5, [rows, *numbers]):
                as_of = numbers[1] if version >= GUARDED else None
                self._commit(rows, as_of)
            case (6, [first_index, position, _]):
                before = self.kept
                fits = before[0] < first_index <= entry.index and before[1] < position <= entry.pos
                needed = [*self.waiting, *[half.at for half in self.halves.values()], position]
                if fits and min(needed) >= position:
                    self.kept = (first_index, position)
                    self.passed_over = [at for at in self.passed_over if at >= first_index]
            case (7, [group, client, is_lock, time_ms, queues]):
                self._lock(group, client, is_lock, time_ms, queues)
            case (8, [node, address]):
                self.leader = (node, address)
            case (9, []):
                if self.format < INCARNATIONS <= version:
                    self._raised_at = entry.index
                self.format = max(self.format, version)
            case (13, [position]):
                waiting = self.waiting.pop(position, None)
                if waiting is not None:
                    self.dropped.add(waiting.number)
            case (16, [position]):
                self._end(position, kind)
            case (17, [due_ms, positions]):
                for position in positions:
                    half = self.halves.get(position)
                    if half is not None:
                        asked = half._replace(due_ms=due_ms, checks=half.checks + 1)
                        self.halves[position] = asked
            case (21, [group, topic, offsets, _, as_of]):
                self._reset(entry, group, topic, offsets, as_of)
            case (22, [group, topic, queue_id, offset, *_]):
                if self.resets.get((group, topic, queue_id)) == offset:
                    del self.resets[group, topic, queue_id]
            case (23, [group, topic, queue_id, *rest]):
                self._pop((group, topic, queue_id), *rest)
            case (24, [messages]):
                for *key, offset, popped_ms in messages:
                    self._end_popped(tuple(key), offset, popped_ms, is_buried=False)
            case (25, [[*key, offset, popped_ms], hidden_ms, visible_ms, *suspended]):
                if version >= RENEWALS:  # the delivery stays the same one
                    hidden_ms = popped_ms
                hidden = hidden_ms, visible_ms, suspended == [True]
                self._hide_popped(tuple(key), offset, popped_ms, hidden)
            case (30, [pairs, _]):
                self._change_settings(pairs)
            case (35, [user, sealed, _, _, only_if]):
                exists = user in self.users
                if only_if in (None, exists) and (exists or sealed is not None):
                    self.users.add(user)
            case (36, [user]):
                self.users.discard(user)
            case (37, [user, _, rules]):
                if user in self.users:
                    self.rule_marks |= {
                        sources for _resource, _actions, sources, _decision in rules
                    }
            case (38, [_, _, _]):
                pass
            case (39, [_, _, _, _, _]):
                pass  # who asked for a change that follows
            case _:
                raise ValueError(f"an entry that the model does not know: {kind} {members}")

    def _reset(
        self, entry: Entry, group: str, topic: str, offsets: list[list[int]], as_of: int
    ) -> None:
        if topic in self.topics and self.created_at.get(topic, -1) < as_of:
            for queue_id, offset in offsets:
                self.offsets[group, topic, queue_id] = offset
                self.resets[group, topic, queue_id] = offset
                is_told = self.format >= INCARNATIONS
                self._moves[group, topic, queue_id] = (entry.pos, offset) if is_told else None

    def _change_settings(self, pairs: list[list[Any]]) -> None:
        for name, value in pairs:
            self.setting_changes.add((name, value))
            if value is None:
                self.settings.pop(name, None)
                continue
            self.settings[name] = value
            if name == "transactionCheckMax":  # a leader may give up by the earlier value
                self._max_checks = min(self._max_checks, int(value))

    # --- pops -----------------------------------------------------------------------------------

    def _pop(
        self,
        key: tuple[str, str, int],
        popped_ms: int,
        visible_ms: int,
        first: int,
        following: int,
        offsets: list[int],
        attempt: str | None,
        begins: bool,
        as_of: int,
    ) -> None:
        topic = key[1]
        if topic not in self.topics or self.created_at.get(topic, -1) >= as_of:
            return
        if begins:
            self.pops[key] = Popped(first)
            self.resets.pop(key, None)
        queue = self.pops.get(key)
        if queue is None or queue.next != first:
            return
        begin = self.begins.get(topic, 0) if begins else first
        self._pop_taken(key, begin, following, offsets)
        repeats = bool(attempt) and attempt == queue.attempt
        is_ordered = attempt is not None
        for offset in offsets:
            if offset >= first:
                times, behind, since_ms = 1, 0, -1
            elif offset not in queue.out:
                continue
            else:
                since_ms, until_ms, times, _, behind, is_suspended = queue.out[offset]
                if until_ms <= popped_ms:
                    if not is_suspended:
                        times += 1
                        behind += is_ordered and offset != offsets[0]
                elif not repeats:
                    continue
            if since_ms >= popped_ms:
                raise InvariantViolated(
                    "each delivery has handles of its own",
                    f"message {offset} of {key}, given at {since_ms}, is given at {popped_ms}",
                )
            queue.out[offset] = (popped_ms, visible_ms, times, is_ordered, behind, False)
        queue.next, queue.attempt = following, attempt or ""
        self.offsets[key] = queue.done

    def _end_popped(
        self, key: tuple[Any, ...], offset: int, popped_ms: int, *, is_buried: bool
    ) -> bool:
        group, topic, queue_id = key
        queue = self.pops.get((group, topic, queue_id))
        if queue is None or queue.out.get(offset, (-1,))[0] != popped_ms:
            return False
        _, _, times, is_ordered, behind, is_suspended = queue.out[offset]
        if is_ordered and offset > queue.done and not is_buried:
            queue.out[offset] = (popped_ms, 0, times, True, behind, is_suspended)
        else:
            del queue.out[offset]
            while queue.out and queue.out[queue.done][1] == 0:
                del queue.out[queue.done]
        self.offsets[group, topic, queue_id] = queue.done
        return True

    def _hide_popped(
        self, key: tuple[Any, ...], offset: int, popped_ms: int, hidden: tuple[int, int, bool]
    ) -> None:
        group, topic, queue_id = key
        queue = self.pops.get((group, topic, queue_id))
        found = None if queue is None else queue.out.get(offset)
        if queue is not None and found is not None and found[0] == popped_ms and found[1]:
            queue.out[offset] = (*hidden[:2], *found[2:5], hidden[2])

    # --- topics, groups, offsets and locks ------------------------------------------------------

    def _put_topic(
        self, entry: Entry, config: list[Any], only_if_absent: bool, limit: list[int]
    ) -> None:
        topic = config[0]
        if topic in self.topics:
            if not only_if_absent:
                self.topics[topic] = config
            return
        if limit and len(self.topics) >= limit[0]:
            return
        self.topics[topic] = config
        if topic in self.ended_topics:
            self.begins[topic] = self.ended_topics.pop(topic)
        self._births.setdefault(topic, []).append(entry.index)
        if limit:
            self.created_at[topic] = entry.pos

    def _delete_topic(
        self, entry: Entry, topic: str, *, with_locks: bool, keeps_ends: bool
    ) -> None:
        if self.topics.pop(topic, None) is None:
            return
        of_topic = [end for key, end in self.ends.items() if key[0] == topic]
        last = max([self.begins.pop(topic, 0), *of_topic])
        was_under_way = entry.index - self._raised_at <= MOST_UNDER_WAY
        if self.format < INCARNATIONS or (was_under_way and not keeps_ends):
            self._earlier_ends[topic] = max(self._earlier_ends[topic], last)
        if keeps_ends and last:
            self.ended_topics[topic] = last
        self.created_at.pop(topic, None)
        self.ends = {key: end for key, end in self.ends.items() if key[0] != topic}
        self.offsets = {key: at for key, at in self.offsets.items() if key[1] != topic}
        self.resets = {key: at for key, at in self.resets.items() if key[1] != topic}
        self._moves = {key: move for key, move in self._moves.items() if key[1] != topic}
        self.pops = {key: queue for key, queue in self.pops.items() if key[1] != topic}
        taken = self._taken_letters
        self._taken_letters = {key: letters for key, letters in taken.items() if key[0] != topic}
        if with_locks:
            self.locks = {key: lock for key, lock in self.locks.items() if key[1] != topic}

    def _put_group(self, config: dict[str, object], only_if_absent: bool, limit: list[int]) -> None:
        name = str(config["group"])
        if name in self.groups:
            if not only_if_absent:
                self.groups[name] = config
        elif not limit or len(self.groups) < limit[0]:
            self.groups[name] = config

    def _delete_group(self, group: str, with_offsets: bool, *, with_locks: bool) -> None:
        self.groups.pop(group, None)
        if with_offsets:
            self.offsets = {key: at for key, at in self.offsets.items() if key[0] != group}
            self.resets = {key: at for key, at in self.resets.items() if key[0] != group}
        if with_locks:
            self.locks = {key: lock for key, lock in self.locks.items() if key[0] != group}

    def _commit(self, rows: list[Any], as_of: int | None) -> None:
        for group, topic, queue_id, offset in rows:
            if as_of is not None and (
                topic not in self.topics or self.created_at.get(topic, -1) >= as_of
            ):
                continue
            if self.resets.get((group, topic, queue_id), offset) != offset:
                continue
            self.offsets[group, topic, queue_id] = offset
            if topic in self.created_at:  # else an older broker made it, and did not say when
                key = (group, topic, queue_id)
                self._offset_taken(key, offset, self._births[topic][-1])

    def _lock(
        self, group: str, client: str, is_lock: bool, time_ms: int, queues: list[Any]
    ) -> None:
        self._lock_time_ms = now_ms = max(self._lock_time_ms, time_ms)
        if now_ms - self._swept_ms > LOCK_MS:
            self._swept_ms = now_ms
            self.locks = {
                key: lock for key, lock in self.locks.items() if now_ms - lock[1] <= LOCK_MS
            }
        for topic, queue_id in queues:
            key = (group, topic, queue_id)
            owner = self.locks.get(key)
            if not is_lock:
                if owner is not None and owner[0] == client:
                    del self.locks[key]
            elif owner is None or owner[0] == client or now_ms - owner[1] > LOCK_MS:
                self.locks[key] = (client, now_ms)


def _records_of(entry: Entry) -> list[_Record]:
    """Return the records that an entry begins with."""
    records: list[_Record] = []
    body, begin = entry.body, 0
    while body[begin + 4 : begin + 8] == RECORD_MAGIC.to_bytes(4, "big"):
        size, queue_id = struct.unpack_from(">i8xi", body, begin)
        offset, position = struct.unpack_from(">qq", body, begin + 20)
        (length,) = struct.unpack_from(">i", body, begin + 84)
        at = begin + 88 + length
        end = begin + size
        topic = body[at + 1 : at + 1 + body[at]].decode()
        number = int.from_bytes(body[begin + 88 : begin + 96], "big")
        properties = body[at + 3 + body[at] : end]
        records.append(_Record(begin, end, topic, queue_id, offset, position, number, properties))
        begin = end
    return records


def _values(properties: bytes, name: bytes) -> Iterator[bytes]:
    """Return the values of a property; `name` ends with the separator."""
    pairs = properties.split(b"\x02")
    return (pair[len(name) :] for pair in pairs if pair.startswith(name))


def _tags_code(properties: bytes) -> int:
    """Return Java's hash of the tags, as consumers compare it."""
    tags = list(_values(properties, TAGS))
    if not tags:
        return 0
    code = 0
    for character in tags[0].decode():
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code
