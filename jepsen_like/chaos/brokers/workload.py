"""The traffic of producers and consumers of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

from broker.locks.state import LOCK_MS
from dledger_mq import (
    Admin,
    ConsumeFrom,
    ConsumeResult,
    Listener,
    Message,
    MessageModel,
    MessageQueue,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionCheck,
    TransactionState,
    by_sharding_key,
)
from dledger_mq.errors import MessagingError
from jepsen_like.chance import Chance
from jepsen_like.chaos.brokers.notes import Notes
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.history.value import Value

TOPIC, GROUP, WRITERS = "chaos", "chaos-readers", "chaos-writers"
SEND_TIMEOUT_S = 3.0
# As many as there are producers: if two commit to one queue, neither knows what is committed.
OFFSET_QUEUES = 4


class Turn(NamedTuple):
    """One turn of a producer: its place among producers, its process, and a unique number."""

    place: int
    process: int
    number: int
    chance: Chance
    now_ns: int


class Messages:
    """Plain messages, and a group of push consumers. Other kinds of traffic override a part of it.

    `longest_wait_s` is how long a message may have to wait until it is delivered; `stays` is
    whether consumers never leave their group; `consumer_options` are those of push consumers.
    """

    longest_wait_s = 0.0
    stays = False
    consumer_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, notes: Notes, nameservers: Sequence[str], topic: str = TOPIC) -> None:
        self._notes = notes
        self._nameservers = nameservers
        self._topic = topic
        self._group, self._writers = f"{topic}-readers", f"{topic}-writers"
        self._check: TransactionCheck | None = None

    def go_on(self, operations: Sequence[Operation]) -> None:
        """Go on after clients that were killed and have made these calls."""

    def admin(self) -> Admin:
        """Return an administrator that is not open yet."""
        return Admin(nameservers=self._nameservers)

    async def operate(self) -> None:
        """Do what is neither sending nor consuming, beside these."""

    def order(self, text: str) -> None:
        """Take an order of a nemesis."""

    def producer(self) -> AbstractAsyncContextManager[Any]:
        """Return a producer that is not open yet."""
        return Producer(
            self._writers,
            nameservers=self._nameservers,
            timeout_s=SEND_TIMEOUT_S,
            check=self._check,
        )

    async def send(self, producer: Producer, turn: Turn) -> tuple[EventType, int]:
        """Send a message; return the outcome, and the process that goes on."""
        return await self._sent(
            producer, turn, None, turn.number, Message(self._topic, body_of(turn))
        )

    async def _sent(
        self,
        producer: Producer,
        turn: Turn,
        key: Value,
        value: object,
        message: Message,
        selector: Any = None,
    ) -> tuple[EventType, int]:
        outcome, process = await self._notes.call(
            turn.process, "send", key, value, lambda: producer.send(message, selector=selector)
        )
        if outcome is EventType.OK:
            self._notes.expect(key, turn.number)
        return outcome, process

    def consumer(self, process: int) -> AbstractAsyncContextManager[Any]:
        """Return a consumer that is not open yet, and notes deliveries as this process."""
        return PushConsumer(
            self._group,
            self._topic,
            self._listener(process),
            nameservers=self._nameservers,
            consume_from=ConsumeFrom.FIRST,
            **self.consumer_options,
        )

    def _listener(self, process: int) -> Listener:
        async def listen(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            for message in messages:
                self._notes.receive(process, self.key_of(message), [int(message.body)])
            return ConsumeResult.SUCCESS

        return listen

    def key_of(self, message: ReceivedMessage) -> Value:
        """Return the key under which the history has a message."""
        return None

    def keys(self, producers: int) -> Sequence[Value]:
        return (None,)

    async def is_drained(self, admin: Admin) -> bool:
        """Return whether the group has committed all messages. Raises MessagingError."""
        progress = await admin.progress(self._topic, self._group)
        return bool(progress) and all(row.lag == 0 for row in progress)

    def note_end(self, consumers: int, producers: int) -> None:
        """Note that nothing is left to consume."""
        for key in self.keys(producers):
            self._notes.drain(0, key)


class Broadcast(Messages):
    """Plain messages, and consumers of which each receives all."""

    longest_wait_s = 30.0
    consumer_options: ClassVar[Mapping[str, Any]] = {"model": MessageModel.BROADCASTING}
    stays = True  # broadcasts that came while a consumer was away never reach it

    async def is_drained(self, admin: Admin) -> bool:
        return True  # brokers do not know how far consumers of broadcasts are

    def note_end(self, consumers: int, producers: int) -> None:
        for consumer in range(consumers):
            self._notes.drain(consumer, None)


class Offsets(Messages):
    """Committed offsets: each producer commits those of one queue, and asks for any queue's."""

    def __init__(self, notes: Notes, nameservers: Sequence[str], topic: str = TOPIC) -> None:
        super().__init__(notes, nameservers, topic)
        self._queues: list[MessageQueue] = []

    def producer(self) -> AbstractAsyncContextManager[Any]:
        return PullConsumer(self._group, nameservers=self._nameservers)

    async def send(self, producer: Any, turn: Turn) -> tuple[EventType, int]:
        """Commit an offset that is larger than the last one, or ask for one."""
        queues = await self._found(producer)
        if not queues:
            return EventType.FAIL, turn.process
        if turn.chance.happens(0.5):
            own, offset = queues[turn.place % len(queues)], turn.number + 1
            return await self._notes.call(
                turn.process, "commit", own.queue_id, offset, lambda: producer.commit(own, offset)
            )
        return await self._ask(producer, turn.process, turn.chance.choice(queues))

    async def _ask(
        self, consumer: PullConsumer, process: int, queue: MessageQueue
    ) -> tuple[EventType, int]:
        async def fetch() -> int:
            return await consumer.committed(queue) or 0  # nothing was committed

        return await self._notes.ask(process, "fetch", queue.queue_id, fetch)

    async def _found(self, consumer: PullConsumer) -> list[MessageQueue]:
        """Return the queues of the topic; none while it cannot be made."""
        if not self._queues:
            try:
                async with Admin(nameservers=self._nameservers) as admin:
                    await admin.create_topic(self._topic, queues=OFFSET_QUEUES)
                self._queues = sorted(
                    await consumer.queues(self._topic), key=lambda one: one.queue_id
                )
            except MessagingError:
                return []
        return self._queues

    def consumer(self, process: int) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    async def is_drained(self, admin: Admin) -> bool:
        """Ask for what is committed at the end."""
        async with self.producer() as consumer:
            for queue in self._queues:
                outcome, self._notes.onlooker = await self._ask(
                    consumer, self._notes.onlooker, queue
                )
                if outcome is not EventType.OK:
                    return False
        return True

    def note_end(self, consumers: int, producers: int) -> None: ...


class Popped(Messages):
    """Plain messages, and consumers that pop."""

    # Messages of a consumer that left come again after their invisible time.
    longest_wait_s = 60.0

    def consumer(self, process: int) -> AbstractAsyncContextManager[Any]:
        return PopConsumer(
            self._group,
            self._topic,
            self._listener(process),
            nameservers=self._nameservers,
            from_first=True,
        )


KEYS_A_PRODUCER = 3


class Ordered(Messages):
    """Messages with keys, each key's in the order of their sends: one producer sends each key."""

    # A consumer that left while no broker led has not unlocked its queues: others get them when
    # the locks have expired, and ask for them every 20 s.
    longest_wait_s = LOCK_MS / 1000 + 20.0
    consumer_options: ClassVar[Mapping[str, Any]] = {"ordered": True}

    async def send(self, producer: Producer, turn: Turn) -> tuple[EventType, int]:
        key = f"{turn.place}-{turn.chance.randrange(KEYS_A_PRODUCER)}"
        message = Message(self._topic, body_of(turn), sharding_key=key, keys=key)
        return await self._sent(producer, turn, key, turn.number, message, by_sharding_key)

    def key_of(self, message: ReceivedMessage) -> Value:
        return message.keys

    def keys(self, producers: int) -> Sequence[Value]:
        places, numbers = range(producers), range(KEYS_A_PRODUCER)
        return [f"{place}-{number}" for place in places for number in numbers]


NS_A_MS = 1_000_000


class Delayed(Messages):
    """Messages that are delivered later: by `delays_ms` at the least and at the most."""

    delays_ms = (500, 8_000)
    longest_wait_s = delays_ms[1] / 1000 + 10.0

    async def send(self, producer: Producer, turn: Turn) -> tuple[EventType, int]:
        message, value = self._delayed(turn)
        return await self._sent(producer, turn, None, value, message)

    def _delayed(self, turn: Turn) -> tuple[Message, dict[str, int]]:
        """Return a message, and its value in the history. A delay counts from its arrival on."""
        delay_ms = turn.chance.randint(*self.delays_ms)
        message = Message(self._topic, body_of(turn), delay_ms=delay_ms)
        return message, {"id": turn.number, "deliver_at_ns": turn.now_ns + delay_ms * NS_A_MS}


COMMITS, LEFT_OPEN = 0.7, 0.05


class Transactional(Messages):
    """Transactions: half messages that are committed, rolled back, or left for brokers to ask."""

    # A broker asks 6 s after the message was stored, and then every 30 s.
    longest_wait_s = 40.0

    def __init__(self, notes: Notes, nameservers: Sequence[str], topic: str = TOPIC) -> None:
        super().__init__(notes, nameservers, topic)
        self._commits: dict[int, bool] = {}
        self._check = self._state_of

    async def _state_of(self, message: ReceivedMessage) -> TransactionState:
        commits = self._commits.get(int(message.body))
        if commits is None:
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if commits else TransactionState.ROLLBACK

    async def send(self, producer: Producer, turn: Turn) -> tuple[EventType, int]:
        """Send a half message, and end it. One that may be stored and was not begun rolls back."""
        begun: list[Any] = []

        async def prepare() -> None:
            begun.append(await producer.begin_transaction(Message(self._topic, body_of(turn))))

        number, notes = turn.number, self._notes
        outcome, process = await notes.call(turn.process, "prepare", None, number, prepare)
        if not begun:
            self._commits[number] = False
            return outcome, process
        (transaction,) = begun
        commits = self._commits[number] = turn.chance.happens(COMMITS)
        function = "commit" if commits else "rollback"
        if turn.chance.happens(LEFT_OPEN):
            transaction.leave_open()
            return EventType.INFO, notes.leave_unknown(process, function, None, number)
        end = transaction.commit if commits else transaction.roll_back
        outcome, process = await notes.call(process, function, None, number, end)
        if commits and outcome is EventType.OK:
            notes.expect(None, number)
        return outcome, process


def body_of(turn: Turn) -> bytes:
    return str(turn.number).encode()
