"""Producers and consumers of a topic that is never deleted: order, locks, filters, and offsets.

A producer sends the next message of a key when the one before is answered. A consumer locks a queue
before it pulls from it, commits how far it has come, gives the queue up, or crashes. So no two
consumers may hold a queue, none may skip a message, and none may begin before a committed offset.
Others pull with filters, and must get all messages that they want and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from jepsen_like.simulation.broker.asking import (
    PATIENCE_S,
    ClientRun,
    commit_fields,
    pull_fields,
    send_fields,
)
from jepsen_like.simulation.broker.log_model import LogModel
from jepsen_like.simulation.broker.raw_entries import NUMBER_BYTES
from jepsen_like.simulation.broker.served_broker import ServedBroker
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.node_settings import GROUP
from remoting.bodies.consumer_group import QueueLock, decode_locked_queues, encode_queue_lock
from remoting.bodies.message_queue import MessageQueue
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

# The other clients of a run use other topics, groups and names.
TOPIC, CONSUMERS = "Ordered", "InOrder"
CLIENTS = ("O0", "O1", "O2")
QUEUES = 2
KEYS = 4
LARGEST_N = 5


class Wanted(NamedTuple):
    """A subscription, and whether it wants a message with a tag and a number."""

    kind: str
    expression: str
    wants: Callable[[str, int], bool]


WANTED = (
    Wanted("TAG", "A", lambda tag, _: tag == "A"),
    Wanted("TAG", "A || B", lambda tag, _: tag in ("A", "B")),
    Wanted("SQL92", "n BETWEEN 1 AND 3", lambda _, n: 1 <= n <= 3),
    Wanted("SQL92", "TAGS IS NULL OR n > 3", lambda tag, n: not tag or n > 3),
    Wanted("SQL92", "TAGS = 'B' AND n <> 2", lambda tag, n: tag == "B" and n != 2),
)


@dataclass(slots=True)
class _Sent:
    """A message: its key, tag and number, and its place, once its sender was told."""

    key: int
    tag: str
    n: int
    place: tuple[int, int] | None = None


@dataclass(slots=True)
class _Seat:
    """One client at one queue.

    Attributes:
        holds: whether it takes the queue for locked by it.
        offset: its next offset; None until it has asked.
        era: of its lock; answers to questions of an earlier era are ignored.
        asks_until: it waits for an answer until then.
        left: whether its unlock is unanswered: that unlock could end a lock that it asks for now.
    """

    holds: bool = False
    offset: int | None = None
    era: int = 0
    asks_until: float = 0.0
    left: bool = False


class OrderedClients:
    """Requests of these clients; `locks_hold`: whether only these clients end locks."""

    def __init__(self, run: ClientRun, locks_hold: bool) -> None:
        self._run = run
        self._chance = run.chance("ordered clients")
        self._locks_hold = locks_hold
        self._sent: dict[int, _Sent] = {}
        self._busy_keys: dict[int, float] = {}  # until when
        # pairs of a key: the first was stored before the second was sent
        self._in_order: list[tuple[int, int]] = []
        self._last: dict[int, int] = {}  # by key: the last message that was stored
        self._seats = {(client, queue): _Seat() for client in CLIENTS for queue in range(QUEUES)}
        self._next = [0] * QUEUES  # the first offset that was never consumed
        self._committed = [0] * QUEUES
        self._numbers: dict[tuple[int, int], int] = {}  # by queue and offset
        self._broken: InvariantViolated | None = None

    def _violated(self, promise: str, what: str) -> None:
        """Keep a broken promise for the next step: a reply is handled within the broker's turn."""
        self._broken = self._broken or InvariantViolated(promise, what)

    def _look(self) -> None:
        """Raise InvariantViolated if a reply broke a promise."""
        if self._broken is not None:
            raise self._broken

    # --- producers ------------------------------------------------------------------------------

    def send(self, broker: ServedBroker) -> None:
        """Send the next message of a key. Raises InvariantViolated."""
        self._look()
        chance = self._chance
        key = chance.randrange(KEYS)
        if self._busy_keys.get(key, 0.0) > self._run.loop.now:
            return
        self._busy_keys[key] = self._run.loop.now + PATIENCE_S
        number = self._run.history.new_message()
        sent = self._sent[number] = _Sent(
            key, chance.choice(("", "A", "B")), chance.randrange(LARGEST_N)
        )
        properties = f"n\x01{sent.n}\x02" + (f"TAGS\x01{sent.tag}\x02" if sent.tag else "")
        fields = send_fields(TOPIC, key % QUEUES, properties)
        before = self._last.get(key)

        def then(reply: Command) -> None:
            self._busy_keys[key] = 0.0
            if reply.code == ResponseCode.SUCCESS:
                sent.place = int(reply.fields["queueId"]), int(reply.fields["queueOffset"])
                if before is not None:
                    self._in_order.append((before, number))
                self._last[key] = number

        body = number.to_bytes(NUMBER_BYTES, "big")
        self._run.ask(broker, RequestCode.SEND_MESSAGE, fields, body, then)

    # --- consumers in order ---------------------------------------------------------------------

    def consume(self, broker: ServedBroker) -> None:
        """Do the next step of a client at a queue. Raises InvariantViolated."""
        self._look()
        client, queue = self._chance.choice(CLIENTS), self._chance.randrange(QUEUES)
        seat = self._seats[client, queue]
        if seat.left or seat.asks_until > self._run.loop.now:
            return
        if not seat.holds:
            self._lock(broker, client, queue, seat)
        elif self._chance.happens(0.1):
            self._leave(broker, client, queue, seat)
        elif self._chance.happens(0.05):  # and begins again; the broker keeps its lock
            self._run.coverage.count("consumers in order that crashed")
            seat.holds, seat.offset = False, None
            seat.era += 1
        elif seat.offset is None:
            self._ask_offset(broker, queue, seat)
        else:
            self._pull(broker, queue, seat, seat.offset)

    def _lock(self, broker: ServedBroker, client: str, queue: int, seat: _Seat) -> None:
        def then(reply: Command) -> None:
            if reply.code != ResponseCode.SUCCESS:
                return
            if queue not in [one.queue_id for one in decode_locked_queues(reply.body)]:
                return
            for other in CLIENTS:
                if other != client and self._seats[other, queue].holds and self._locks_hold:
                    self._violated(
                        "no two consumers hold a queue",
                        f"{client} was given queue {queue}, which {other} holds",
                    )
            self._run.coverage.count("queues locked by consumers in order")
            seat.holds, seat.offset = True, None

        body = encode_queue_lock(QueueLock(CONSUMERS, client, [_mq(queue)]))
        answered = self._run.question(seat, then)
        self._run.ask(broker, RequestCode.LOCK_BATCH_MQ, {}, body, answered)

    def _leave(self, broker: ServedBroker, client: str, queue: int, seat: _Seat) -> None:
        seat.holds, seat.offset, seat.left = False, None, True
        seat.era += 1

        def then(reply: Command) -> None:
            seat.left = reply.code != ResponseCode.SUCCESS

        body = encode_queue_lock(QueueLock(CONSUMERS, client, [_mq(queue)]))
        self._run.ask(broker, RequestCode.UNLOCK_BATCH_MQ, {}, body, then)

    def _ask_offset(self, broker: ServedBroker, queue: int, seat: _Seat) -> None:
        asked_for = self._committed[queue]

        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                seat.offset = int(reply.fields["offset"])
            elif reply.code == ResponseCode.QUERY_NOT_FOUND:
                seat.offset = 0
            else:
                return
            if seat.offset < asked_for:
                self._violated(
                    "committed offsets do not go back",
                    f"{asked_for} of queue {queue} was committed before, {seat.offset} is told",
                )

        fields = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": queue}
        answered = self._run.question(seat, then)
        self._run.ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, fields, then=answered)

    def _pull(self, broker: ServedBroker, queue: int, seat: _Seat, offset: int) -> None:
        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                self._consumed(queue, offset, reply)
            elif reply.code != ResponseCode.PULL_OFFSET_MOVED:
                return
            seat.offset = following = int(reply.fields["nextBeginOffset"])
            if reply.code == ResponseCode.PULL_OFFSET_MOVED:  # retention was faster
                self._next[queue] = max(self._next[queue], following)
            self._commit(broker, queue, following)

        fields = pull_fields(self._chance, CONSUMERS, TOPIC, queue, offset)
        self._run.ask(broker, RequestCode.PULL_MESSAGE, fields, then=self._run.question(seat, then))

    def _consumed(self, queue: int, offset: int, reply: Command) -> None:
        """Check the messages that a consumer got from an offset on."""
        for number, at in self._read(queue, reply):
            if at != offset:
                self._violated(
                    "messages come in order", f"{number} is at {at}, {offset} was to come"
                )
            if at > self._next[queue]:
                self._violated(
                    "no message is skipped",
                    f"{at} of queue {queue} is consumed, {self._next[queue]} never was",
                )
            self._next[queue] = max(self._next[queue], at + 1)
            self._run.coverage.count("messages consumed in order")
            offset += 1

    def _read(self, queue: int, reply: Command) -> list[tuple[int, int]]:
        """Return the numbers of the messages of a reply, and their offsets."""
        found = []
        for record in decode_records(reply.body):
            number = int.from_bytes(record.body[:NUMBER_BYTES], "big")
            known = self._numbers.setdefault((queue, record.queue_offset), number)
            if known != number or record.topic != TOPIC or record.queue_id != queue:
                self._violated(
                    "an offset has one message",
                    f"{record.queue_offset} of queue {queue} is {known}, and {number} of "
                    f"{record.topic}/{record.queue_id}",
                )
            found.append((number, record.queue_offset))
        return found

    def _commit(self, broker: ServedBroker, queue: int, offset: int) -> None:
        def then(reply: Command) -> None:
            # Two that hold a queue move each other's offset back, as in RocketMQ.
            if reply.code == ResponseCode.SUCCESS and self._locks_hold:
                self._committed[queue] = max(self._committed[queue], offset)

        fields = commit_fields(CONSUMERS, TOPIC, queue, offset)
        self._run.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields, then=then)

    # --- consumers with filters -----------------------------------------------------------------

    def pull_filtered(self, broker: ServedBroker) -> None:
        """Pull from some offset of a queue with a filter. Raises InvariantViolated."""
        self._look()
        queue = self._chance.randrange(QUEUES)
        offset = self._chance.randrange(self._next[queue] + 2)
        wanted = self._chance.choice(WANTED)
        fields = pull_fields(self._chance, CONSUMERS, TOPIC, queue, offset)
        fields |= {"subscription": wanted.expression, "expressionType": wanted.kind}
        then = partial(self._filtered, queue, offset, wanted)
        self._run.ask(broker, RequestCode.PULL_MESSAGE, fields, then=then)

    def _filtered(self, queue: int, offset: int, wanted: Wanted, reply: Command) -> None:
        passed = (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
        if reply.code not in passed:
            return
        given = self._read(queue, reply) if reply.code == ResponseCode.SUCCESS else []
        following = int(reply.fields["nextBeginOffset"])
        for number, at in given:
            sent = self._sent[number]
            if not offset <= at < following or not wanted.wants(sent.tag, sent.n):
                self._violated(
                    "filters let through what is wanted",
                    f"{sent} came to a pull of {offset} with {wanted.expression}",
                )
        numbers = {number for number, _ in given}
        for number, sent in self._sent.items():
            if sent.place is None or number in numbers or not wanted.wants(sent.tag, sent.n):
                continue
            if sent.place[0] == queue and offset <= sent.place[1] < following:
                self._violated(
                    "filters let through what is wanted",
                    f"{sent} did not come to a pull of {offset} to {following} with "
                    f"{wanted.expression}",
                )
        self._run.coverage.count("messages let through by filters", len(given))

    # --- the end --------------------------------------------------------------------------------

    def check(self, model: LogModel) -> None:
        """Compare with the whole log. Raises InvariantViolated."""
        self._look()
        for earlier, later in self._in_order:
            first, second = model.stored[earlier], model.stored[later]
            if first.offset >= second.offset:
                raise InvariantViolated(
                    "messages of a key are in order", f"{first} was stored before {second}"
                )
        for queue, committed in enumerate(self._committed):
            found = model.offsets.get((CONSUMERS, TOPIC, queue), 0)
            if found < committed:
                raise InvariantViolated(
                    "committed offsets do not go back",
                    f"{committed} of queue {queue} was committed, the log has {found}",
                )
        for (queue, offset), number in self._numbers.items():
            stored = model.stored.get(number)
            if stored is None or stored[:3] != (TOPIC, queue, offset):
                raise InvariantViolated(
                    "consumed messages are in the log",
                    f"{number} was given at {offset} of queue {queue}, the log has {stored}",
                )


def _mq(queue: int) -> MessageQueue:
    return MessageQueue(TOPIC, GROUP, queue)
