"""Appends messages to the log: one append of few entries for all messages that arrived together.

Before the append the leader decides queue offset, store time and hosts, and writes them into the
record. Its next offsets are the applied ones plus what it has proposed in this term. When it
becomes ready in a new term, all earlier proposals are applied or lost, and it starts from the
applied state again.
"""

from collections import deque
from collections.abc import Container, Sequence
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from broker.errors import NeverStored, RequestRefused
from broker.formats.commands import RaiseFormat
from broker.formats.state import FORMATS
from broker.log.append_outcome import refusal_of_entry, refused_append
from broker.log.entry import ATTACHED_VERSION, RUNS_VERSION, encode_log_command
from broker.log.folded import Folded
from broker.log.one_by_one import call, failure
from broker.messages.state import MESSAGES
from broker.sends.entry_packing import EntryPacking, Spot
from broker.sends.entry_room import EntryRoom
from broker.sends.pending_messages import PendingMessages, Replies
from broker.sends.unique_keys import UniqueKeys
from broker.serving.parts import Parts, Shared
from broker.traffic.put_times import PUT_TIMES
from broker.traffic.traffic import TRAFFIC
from dledger import HEADER_BYTES, Appended, Body, DLedgerError, LogFull, PositionedBody
from remoting.message.errors import MessageMalformed
from remoting.message.properties import (
    TAGS,
    UNIQUE_KEY,
    has_pair,
    is_whole,
    mended_runs,
    name_mark,
    with_last_pair_alone,
)
from remoting.message.record import MessageRecord, encode_parts_of_all
from remoting.message.record_batch import RecordBatch

_UNIQUE_KEY: Final = name_mark(UNIQUE_KEY)
_TAGS: Final = name_mark(TAGS)


class _Placed(NamedTuple):
    """Sends with the places that they get if the log takes them next, and their records.

    Attributes:
        spots: for each send, the places of its records among the bodies that hold records.
        raised_format: the format to which the first body, a command, raises the log; 0 if all
            bodies hold records.
    """

    sends: Sequence[PendingMessages]
    spots: Sequence[Sequence[Spot]]
    bodies: Sequence[Body]
    raised_format: int
    next_offsets: dict[tuple[str, int], int]
    store_timestamp_ms: int


class Sends:
    """The messages that wait for the log, and the offsets they will have."""

    def __init__(self, parts: Parts) -> None:
        self._messages = parts.state[MESSAGES]
        self._log = parts.log
        self._host, self._port = parts.config.address.host, parts.config.address.port
        self._limits = parts.config.limits
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._put_times = parts[PUT_TIMES]
        self._traffic = parts[TRAFFIC]
        self._waiting: deque[PendingMessages] = deque()
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._next: dict[tuple[str, int], int] = {}
        # Sends for which the log had no room. They are kept encoded, because encoding them again
        # at each flush would take as long as an append.
        self._held: _Placed | None = None
        self._store_timestamp_ms = 0
        self._keys = UniqueKeys(parts.config.address, parts.process_id, parts.wall_clock_ms)
        self._epoch = 0
        self._formats = parts.state[FORMATS]
        self._room = EntryRoom(parts.state, parts.log)
        self._raising_format = 0  # the format that this leader has proposed in this term

    @property
    def waiting_messages(self) -> int:
        return self._waiting_messages

    def add(self, send: PendingMessages) -> None:
        """Queue messages for the next `flush`. Raises RequestRefused (2): too many wait already."""
        limits = self._limits
        if self._waiting_messages and (
            self._waiting_messages + len(send.records) > limits.max_waiting_sends
            or self._waiting_bytes + send.size > limits.max_waiting_send_bytes
        ):
            raise RequestRefused.busy(
                f"[OVERLOAD]{self._waiting_messages} messages wait for the log: send more slowly"
            )
        self._push(send)

    def flush(self) -> None:
        """Append the waiting messages while the log has room; the others follow later."""
        while self._waiting or self._held is not None:
            placed = self._take_placed()
            if placed is None:
                return
            sends = placed.sends
            try:
                then = partial(self._appended, placed, self._epoch, self._clock())
                self._log.submit(placed.bodies, then)
            except LogFull:
                self._held = placed
                self._count(sends, 1)
                return
            except DLedgerError as error:
                self._refuse(sends, refused_append(error))
                continue
            except Exception as error:
                self._refuse(sends, failure("handing messages to the log", error))
                continue
            self._next.update(placed.next_offsets)
            self._raising_format = max(self._raising_format, placed.raised_format)
            self._store_timestamp_ms = placed.store_timestamp_ms

    def _refuse(self, sends: Sequence[PendingMessages], refusal: RequestRefused) -> None:
        self._put_times.failed += sum([len(send.records) for send in sends])
        for send in sends:
            call("refusing a send", send.refuse, refusal)

    def _take_placed(self) -> _Placed | None:
        """Take the sends for the next append, or None if no message waits."""
        if (held := self._held) is not None:
            self._held = None
            self._count(held.sends, -1)
            return held
        while self._waiting:
            placed = self._place(self._take_chunk())
            if placed.sends:
                return placed
        return None

    def _discard_places(self) -> None:
        """Discard the places of held sends, because their offsets may no longer be the
        next ones.
        """
        if (held := self._held) is not None:
            self._held = None
            self._count(held.sends, -1)
            for send in reversed(held.sends):
                self._push(send, at_front=True)

    def _count(self, sends: Sequence[PendingMessages], sign: int) -> None:
        self._waiting_messages += sign * sum([len(send.records) for send in sends])
        self._waiting_bytes += sign * sum([send.size for send in sends])

    def begin_term(self) -> None:
        """Continue from the applied offsets in a new term."""
        self._discard_places()
        self._next.clear()
        self._store_timestamp_ms = self._messages.store_timestamp_ms
        self._raising_format = 0
        self._epoch += 1

    def take_waiting(self) -> list[PendingMessages]:
        """Take all messages that are not in flight, for the caller to refuse."""
        self._discard_places()
        waiting, self._waiting = list(self._waiting), deque()
        self._waiting_messages = self._waiting_bytes = 0
        return waiting

    def applied(self, folded: Folded) -> None:
        """Forget the next offsets of deleted topics, whose queues begin elsewhere when created
        again.
        """
        if folded.deleted_topics:
            self._discard_places()
            gone = frozenset(folded.deleted_topics)
            for key in [key for key in self._next if key[0] in gone]:
                del self._next[key]

    def _push(self, send: PendingMessages, at_front: bool = False) -> None:
        (self._waiting.appendleft if at_front else self._waiting.append)(send)
        self._waiting_messages += len(send.records)
        self._waiting_bytes += send.size

    def _take_chunk(self) -> Sequence[PendingMessages]:
        limits, waiting = self._limits, self._waiting
        if (
            self._waiting_messages <= limits.append_entries
            and self._waiting_bytes <= limits.append_bytes
        ):
            self._waiting, self._waiting_messages, self._waiting_bytes = deque(), 0, 0
            return waiting
        chunk = [waiting.popleft()]
        messages, size = len(chunk[0].records), chunk[0].size
        while waiting:
            send = waiting[0]
            more, larger = messages + len(send.records), size + send.size
            if more > limits.append_entries or larger > limits.append_bytes:
                break
            chunk.append(waiting.popleft())
            messages, size = more, larger
        self._waiting_messages -= messages
        self._waiting_bytes -= size
        return chunk

    def _place(self, chunk: Sequence[PendingMessages]) -> _Placed:
        """Give every message its offset, time and hosts, and encode it; refuse those that cannot be
        stored.
        """
        now_ms = max(
            self._wall_clock_ms(), self._store_timestamp_ms, self._messages.store_timestamp_ms
        )
        next_offsets: dict[tuple[str, int], int] = {}
        placed: list[PendingMessages] = []
        spots: list[list[Spot]] = []
        packing = EntryPacking(self._room.most_bytes)
        has_attached = False
        for send in chunk:
            key = (send.topic, send.queue_id)
            offset = next_offsets.get(key)
            if offset is None:
                offset = self._next.get(key)
                if offset is None:
                    offset = self._messages.queue_end(*key)
            try:
                encoded = self._encode(send, offset, now_ms)
                if (attach := send.attach) is None:
                    spots.append(packing.add(encoded))
                else:
                    commands = map(encode_log_command, map(attach, send.records))
                    together = [
                        PositionedBody(record.head, record.tail + command)
                        for record, command in zip(encoded, commands, strict=True)
                    ]
                    spots.append(packing.add_alone(together))
                    has_attached = True
            except Exception as error:
                self._refuse([send], _refusal_of(error))
                continue
            send.first_offset = offset
            next_offsets[key] = offset + len(encoded)
            placed.append(send)
        packing.close()
        bodies = packing.bodies
        needed = ATTACHED_VERSION if has_attached else 0
        if packing.has_runs:
            needed = RUNS_VERSION
        if needed <= max(self._raising_format, self._formats.format_version):
            needed = 0
        else:
            bodies.insert(0, encode_log_command(RaiseFormat(needed)))
        return _Placed(placed, spots, bodies, needed, next_offsets, now_ms)

    def _encode(self, send: PendingMessages, offset: int, now_ms: int) -> list[PositionedBody]:
        """Encode the records of one send, the first at `offset` of its queue. Raises
        MessageMalformed.
        """
        records = send.records
        one_by_one: Sequence[MessageRecord]
        if isinstance(records, RecordBatch):
            records.properties = self.mended(records.properties)
            one_by_one = (records.shared,)
        else:
            for record in records:
                if not is_whole(record.properties, _UNIQUE_KEY, _TAGS):
                    record.properties = self._mended(record.properties)
            one_by_one = records
        for record in one_by_one:
            record.topic = send.topic
            record.queue_id = send.queue_id
            record.queue_offset = offset
            record.store_timestamp = now_ms
            record.store_host, record.store_port = self._host, self._port
            offset += 1
        if isinstance(records, RecordBatch):
            parts = records.encode_parts()
        else:
            parts = encode_parts_of_all(records)
        # A third of the time of PositionedBody(...).
        return list(map(tuple.__new__, repeat(PositionedBody), parts))

    def mended(self, runs: Sequence[bytes]) -> list[bytes]:
        """Return properties as they are stored. Callers may do so for a long batch before they add
        it.
        """
        return mended_runs(runs, _UNIQUE_KEY, _TAGS, self._mended)

    def _mended(self, properties: bytes) -> bytes:
        """Remove all tags but one, and add a key if there is none, as RocketMQ's broker does.

        Of several tags, consumers take the last, and consume queues have the hash of the first.
        """
        properties = with_last_pair_alone(properties, _TAGS)
        if has_pair(properties, _UNIQUE_KEY):
            return properties
        return self._keys.add(properties)

    def _appended(
        self,
        placed: _Placed,
        epoch: int,
        handed_over: float,
        outcome: list[Appended] | DLedgerError,
    ) -> None:
        replies: Replies = {}
        bases: list[int] = []
        whole: RequestRefused | None = None
        refused: dict[int, RequestRefused] = {}  # by entry
        if isinstance(outcome, DLedgerError):
            whole = refused_append(outcome)
            if placed.raised_format and epoch == self._epoch:
                self._raising_format = 0
        else:
            took_s = self._clock() - handed_over
            self._traffic.put_within(placed.next_offsets, took_s)
            entries = outcome[1:] if placed.raised_format else outcome
            bases = [one.pos + HEADER_BYTES for one in entries]
            for entry, refusal in enumerate(map(refusal_of_entry, entries)):
                if refusal is not None:
                    refused[entry] = refusal
            count = sum(map(len, placed.spots))
            if refused:
                count = sum([len(spots) for spots in placed.spots if not _any_of(spots, refused)])
            self._put_times.add(took_s, count)
        for send, spots in zip(placed.sends, placed.spots, strict=True):
            refusal = whole
            if refused:
                refusal = next((refused[at] for at, _offset in spots if at in refused), None)
            if refusal is None:
                positions = [bases[at] + offset for at, offset in spots]
                try:  # as in `call`, without its cost for each send
                    send.stored(positions, replies)
                except Exception as error:
                    failure("answering a send", error)
                    call("answering a send", send.failed)
                continue
            if epoch == self._epoch:
                self._discard_places()
                self._next.pop((send.topic, send.queue_id), None)
            self._refuse([send], refusal)
        for origin, commands in replies.items():
            call("sending answers", origin.send_all, commands)


def _any_of(spots: Sequence[Spot], entries: Container[int]) -> bool:
    return any(entry in entries for entry, _offset in spots)


def _refusal_of(error: Exception) -> RequestRefused:
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, MessageMalformed):
        return NeverStored.illegal(error.reason)
    refusal = failure("placing a send", error)
    return NeverStored(refusal.code, refusal.remark)


SENDS: Final = Shared("sends", Sends)
