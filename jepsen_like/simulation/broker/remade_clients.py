"""Clients of a topic that is deleted and made again under them, and of a group that is moved.

Its consumers are online all the time. Now and then one commits, or sends with a pull, an earlier
offset of its own: from before the topic was deleted, or before its group was moved. In a log of
format 6 an offset may be committed only if every message of the topic before it, from its beginning
or from where its group was moved, was given to the group since; and no pop may pass over a message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from broker.pulls.request import COMMIT_OFFSET_FLAG
from jepsen_like.simulation.broker.asking import ClientRun, commit_fields, pull_fields, send_fields
from jepsen_like.simulation.broker.log_model import UNIT, LogModel
from jepsen_like.simulation.broker.raw_entries import NUMBER_BYTES
from jepsen_like.simulation.broker.served_broker import Client, ServedBroker
from jepsen_like.simulation.invariants import InvariantViolated
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

# The other clients of a run use other topics and groups.
TOPIC, CONSUMERS = "Remade", "Remakers"
# Groups that pop, the second of them in order.
REMADE_GROUPS = ("RemadePops", "RemadePopsInOrder")
MEMBERS = 3
QUEUES = 2
# How many earlier offsets a member may commit once more.
MOST_PLACES = 12


@dataclass(slots=True)
class _Seat:
    """One member at one queue.

    Attributes:
        offset: its next offset; None until it has asked.
        places: its last offsets, in order; of any topic of the name.
        asks_until: it waits for an answer until then.
        era: of its connection; answers to an earlier one are lost.
    """

    offset: int | None = None
    places: list[int] = field(default_factory=list)
    asks_until: float = 0.0
    era: int = 0

    def is_at(self, offset: int) -> None:
        self.offset = offset
        self.places.append(offset)
        del self.places[:-MOST_PLACES]


class _Connection:
    """A connection of a member to a broker, by which the broker knows the member."""

    def __init__(self, broker: ServedBroker) -> None:
        self.broker = broker
        self._client = Client(self._answered)
        self._asked = 0
        self._thens: dict[int, Callable[[Command], None]] = {}

    def ask(
        self, code: RequestCode, fields: Mapping[str, object], then: Callable[[Command], None]
    ) -> None:
        self._asked += 1
        self._thens[self._asked] = then
        texts = {name: str(value) for name, value in fields.items()}
        self.broker.ask(self._client, [Command(code, texts, opaque=self._asked)])

    def _answered(self, reply: Command) -> None:
        self._thens.pop(reply.opaque)(reply)


class RemadeClients:
    def __init__(self, run: ClientRun) -> None:
        self._run = run
        self._chance = run.chance("remade clients")
        self._connections: dict[int, _Connection] = {}  # by member
        self._seats = {(one, queue): _Seat() for one in range(MEMBERS) for queue in range(QUEUES)}
        # By queue and offset: how far the log was applied when the message was given last.
        self._given: dict[tuple[int, int], int] = {}
        self._judged: dict[int, tuple[int, int]] = {}  # by queue: since when, and up to where
        # Of the log, at the member that has dropped most: retention may be faster than the model,
        # and a member that was given a snapshot lacks the messages before it.
        self._begin = 0

    # --- producers and operators ------------------------------------------------------------------

    def send(self, broker: ServedBroker) -> None:
        body = self._run.history.new_message().to_bytes(NUMBER_BYTES, "big")
        fields = send_fields(TOPIC, self._chance.randrange(QUEUES), "")
        self._run.ask(broker, RequestCode.SEND_MESSAGE, fields, body)

    def remake(self, broker: ServedBroker) -> None:
        """Delete the topic, and make it again when it is deleted, or at once."""

        def make() -> None:
            queues = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES}
            fields = {"topic": TOPIC, **queues, "perm": 6}
            self._run.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                self._run.coverage.count("topics deleted under their consumers")
                self._run.loop.after(0.0, make)

        self._run.ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, then=then)
        if self._chance.happens(0.3):
            make()

    def reset(self, broker: ServedBroker) -> None:
        """Move the group to the end, to a time, or to an earlier offset of a member."""

        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                self._run.coverage.count("groups moved under their consumers")

        chance = self._chance
        queue = chance.randrange(QUEUES)
        places = [0, *self._seats[chance.randrange(MEMBERS), queue].places]
        fields = {
            "group": CONSUMERS,
            "topic": TOPIC,
            "timestamp": chance.choice((-1, -1, broker.wall_clock_ms() - 2_000)),
            "isForce": "true",
            "queueId": chance.choice((-1, queue)),
            "offset": chance.choice((-1, -1, chance.choice(places))),
        }
        self._run.ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields, then=then)

    # --- consumers --------------------------------------------------------------------------------

    def consume(self, broker: ServedBroker) -> None:
        chance = self._chance
        self.look(broker)
        member, queue = chance.randrange(MEMBERS), chance.randrange(QUEUES)
        seat = self._seats[member, queue]
        connection = self._connections.get(member)
        if connection is None or connection.broker is not broker or chance.happens(0.02):
            connection = self._connections[member] = _Connection(broker)
            # Pulls bring no offsets of unknown groups.
            group = json.dumps({"groupName": CONSUMERS}).encode()
            self._run.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
            for each in range(QUEUES):
                self._seats[member, each].asks_until = 0.0
                self._seats[member, each].era += 1
        if seat.places and chance.happens(0.2):
            self._commit(connection, queue, chance.choice(seat.places))
        elif seat.asks_until > self._run.loop.now:
            return
        elif seat.offset is None or chance.happens(0.05):
            self._ask_offset(connection, queue, seat)
        else:
            self._pull(connection, queue, seat, seat.offset)

    def _ask_offset(self, connection: _Connection, queue: int, seat: _Seat) -> None:
        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                seat.is_at(int(reply.fields["offset"]))
            elif reply.code == ResponseCode.QUERY_NOT_FOUND:
                seat.is_at(0)

        fields = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": queue}
        answered = self._run.question(seat, then)
        connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields, answered)

    def _pull(self, connection: _Connection, queue: int, seat: _Seat, offset: int) -> None:
        chance = self._chance
        brings = chance.choice((seat.places[-1], chance.choice(seat.places)))
        fields = pull_fields(chance, CONSUMERS, TOPIC, queue, offset, COMMIT_OFFSET_FLAG)
        fields["commitOffset"] = brings
        then = partial(self._pulled, connection.broker, queue, seat)
        connection.ask(RequestCode.PULL_MESSAGE, fields, self._run.question(seat, then))

    def _pulled(self, broker: ServedBroker, queue: int, seat: _Seat, reply: Command) -> None:
        if reply.code == ResponseCode.SUCCESS:
            applied = broker.member.broker.state.log_end
            for record in decode_records(reply.body):
                self._given[queue, record.queue_offset] = applied
                self._run.coverage.count("messages consumed of topics made again")
        elif reply.code == ResponseCode.PULL_OFFSET_MOVED:
            self._begin = max(self._begin, broker.process.store.begin_pos)
        else:
            return
        seat.is_at(int(reply.fields["nextBeginOffset"]))

    def _commit(self, connection: _Connection, queue: int, offset: int) -> None:
        fields = commit_fields(CONSUMERS, TOPIC, queue, offset)
        connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, lambda _reply: None)

    def look(self, broker: ServedBroker) -> None:
        """See where the log of a broker begins that is going to be asked for messages."""
        self._begin = max(self._begin, broker.process.store.begin_pos)

    # --- checks -----------------------------------------------------------------------------------

    def offset_taken(self, model: LogModel, key: tuple[str, str, int], offset: int) -> None:
        """Check an offset that the log commits. Raises InvariantViolated."""
        generation = model.generation(key)
        if key[:2] != (CONSUMERS, TOPIC) or generation is None:
            return
        since, first = generation
        queue, begin = key[2], model.begins.get(TOPIC, 0)
        if offset < begin:
            raise InvariantViolated(
                "no offset outlives its topic",
                f"{offset} of queue {queue} is committed for a topic that begins at {begin}",
            )
        judged = self._judged.get(queue)
        if judged is not None and judged[0] == since:
            first = max(first, judged[1])
        self._run.coverage.count("commits judged of topics made again")
        end = begin + len(model.units(TOPIC, queue, len(model.touched))) // UNIT.size
        if offset > end:
            raise InvariantViolated(
                "what is committed was consumed", f"{offset} of queue {queue} is behind its end"
            )
        for at in self._kept(model, queue, range(first, offset)):
            if self._given.get((queue, at), -1) <= since:
                raise InvariantViolated(
                    "what is committed was consumed",
                    f"{offset} of queue {queue} is committed; the group was at {first} at position "
                    f"{since} of the log, and was not given {at} since",
                )
        self._judged[queue] = since, max(first, offset)

    def pop_taken(
        self,
        model: LogModel,
        key: tuple[str, str, int],
        first: int,
        following: int,
        given: Sequence[int],
    ) -> None:
        """Check that a pop gave all messages from `first` up to `following`. Raises
        InvariantViolated.
        """
        group, topic, queue = key
        if topic != TOPIC or group not in REMADE_GROUPS or model.generation(key) is None:
            return
        self._run.coverage.count("pops judged of topics made again")
        for at in self._kept(model, queue, range(first, following)):
            if at not in given:
                raise InvariantViolated(
                    "no pop passes a message over",
                    f"{group} popped {given} of queue {queue}, from {first} up to {following}",
                )

    def _kept(self, model: LogModel, queue: int, offsets: Iterable[int]) -> Iterator[int]:
        """Yield the offsets whose messages retention has not dropped."""
        units = model.units(TOPIC, queue, len(model.touched))
        begin, gone = model.begins.get(TOPIC, 0), max(self._begin, model.kept[1])
        for at in offsets:
            (position, *_) = UNIT.unpack_from(units, (at - begin) * UNIT.size)
            if position >= gone:
                yield at
