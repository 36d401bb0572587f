"""Clients of a broker: producers, consumers and administrators, mostly at the leader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from broker.messages.state import MESSAGES
from broker.topics.state import TOPICS
from jepsen_like.simulation.broker.asking import PRODUCERS, ClientRun, commit_fields, send_fields
from jepsen_like.simulation.broker.broker_swarm import BrokerStyle
from jepsen_like.simulation.broker.client_history import POSITION_DIGITS
from jepsen_like.simulation.broker.guarded_clients import GuardedClients
from jepsen_like.simulation.broker.log_model import COMMIT, ROLLBACK, LogModel
from jepsen_like.simulation.broker.operators import Operators
from jepsen_like.simulation.broker.ordered_clients import OrderedClients
from jepsen_like.simulation.broker.pop_clients import FILTERS, GROUPS, PopClients
from jepsen_like.simulation.broker.raw_entries import MOST_QUEUES, NUMBER_BYTES, RawEntries
from jepsen_like.simulation.broker.reference import Reference
from jepsen_like.simulation.broker.remade_clients import REMADE_GROUPS, TOPIC, RemadeClients
from jepsen_like.simulation.broker.served_broker import Client, ServedBroker
from jepsen_like.simulation.node_settings import GROUP
from remoting.bodies.consumer_group import QueueLock, encode_queue_lock
from remoting.bodies.heartbeat import Heartbeat, encode_heartbeat
from remoting.bodies.message_queue import MessageQueue
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, decode_record
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

GROUPS_OF_CLIENTS = [f"G{number}" for number in range(4)]
CLIENTS = ["C0", "C1", "C2"]
TAGS = ("", "A", "B", "\u00e4")
MOST_MESSAGES_A_BATCH = 4
LONGEST_PADDING = 60
LONGEST_DELAY_MS = 3_000
MOST_HANDLES = 20
# No client deletes this group or its topics.
RETRYING = "Retries"


class BrokerClients:
    """Requests at random times, to the brokers that run. `reference` is given before the start."""

    def __init__(
        self, run: ClientRun, style: BrokerStyle, brokers: Mapping[str, ServedBroker]
    ) -> None:
        self._run = run
        self._chance = run.chance("broker clients")
        self._every_s = style.request_every_s
        self._wrong_member = style.wrong_member
        self._topics = [f"T{number}" for number in range(style.topics)]
        self._brokers = brokers
        self._over = False
        self._handles: list[tuple[int, str, str]] = []  # of delayed messages: number, topic, handle
        self._halves: list[tuple[int, dict[str, object]]] = []  # number, fields of its end
        self.reference: Reference | None = None
        self.raw = RawEntries(
            run.chance("raw entries"), self._topics, GROUPS_OF_CLIENTS, CLIENTS, self._next_offset
        )
        pops = PopClients(run, "pop clients", self._topic, GROUPS, FILTERS)
        remade_pops = PopClients(run, "pops of remade", lambda: TOPIC, REMADE_GROUPS, ("*",))
        # Raw entries lock queues at times that leap, and so end other locks.
        self.ordered = OrderedClients(run, not style.weights["append raw"])
        self.remade = RemadeClients(run)
        self.operators = Operators(run, self._model, RETRYING, not style.weights["pop"])
        self.guarded = GuardedClients(run, self._topic, lambda: self._message()[1])
        kinds = self._actions(pops, remade_pops)
        self._kinds = list(kinds.values())
        self._weights = [style.weights[name] for name in kinds]

    def _actions(
        self, pops: PopClients, pops_of_remade: PopClients
    ) -> dict[str, Callable[[ServedBroker], None]]:
        """Return the actions of clients, by the names of their weights."""

        def pop_remade(broker: ServedBroker) -> None:
            self.remade.look(broker)
            pops_of_remade.pop(broker)

        return {
            "send": self._send,
            "send batch": self._send_batch,
            "send delayed": self._send_delayed,
            "recall": self._recall,
            "send half": self._send_half,
            "end transaction": self._end,
            "be producer": self._be_producer,
            "put topic": self._put_topic,
            "delete topic": self._delete_topic,
            "put group": self._put_group,
            "delete group": self._delete_group,
            "commit offset": self._commit,
            "lock": self._lock,
            "ask": self._ask,
            "send in order": self.ordered.send,
            "consume in order": self.ordered.consume,
            "pull filtered": self.ordered.pull_filtered,
            "send to remade": self.remade.send,
            "consume remade": self.remade.consume,
            "remake": self.remade.remake,
            "reset remade": self.remade.reset,
            "pop remade": pop_remade,
            "acknowledge remade": pops_of_remade.ack,
            "pop": pops.pop,
            "acknowledge pop": pops.ack,
            "hide pop": pops.hide,
            "reset offsets": self._reset,
            "send back": self._send_back,
            "change settings": self.operators.change_settings,
            "redrive": self.operators.redrive,
            "resume": self.operators.resume,
            "change rule": self.guarded.change_rule,
            "send as user": self.guarded.try_to_send,
            "append raw": self._append_raw,
            "drop log": self._drop_log,
        }

    def stop(self) -> None:
        self._over = True

    def start(self) -> None:
        """Draw the time of the next request."""
        self._run.loop.after(self._chance.wait_s(self._every_s), self._next)

    def _next(self) -> None:
        if self._over:
            return
        broker = self._target()
        if broker is not None:
            self._chance.choices(self._kinds, self._weights)[0](broker)
        self.start()

    def _target(self) -> ServedBroker | None:
        brokers = list(self._brokers.values())
        leaders = [broker for broker in brokers if broker.leads]
        if not leaders or self._chance.happens(self._wrong_member):
            leaders = brokers
        return self._chance.choice(leaders) if leaders else None

    def _model(self) -> LogModel:
        assert self.reference is not None
        return self.reference.model

    def _topic(self) -> str:
        return self._chance.choice(self._topics)

    def _group(self) -> str:
        return self._chance.choice(GROUPS_OF_CLIENTS)

    # --- producers ------------------------------------------------------------------------------

    def _message(self) -> tuple[int, bytes]:
        number = self._run.history.new_message()
        padding = self._chance.randrange(LONGEST_PADDING)
        return number, number.to_bytes(NUMBER_BYTES, "big") + bytes(padding)

    def _properties(self) -> str:
        tags = self._chance.choice(TAGS)
        return f"TAGS\x01{tags}\x02" if tags else ""

    def _send_fields(self, topic: str) -> dict[str, object]:
        queue_id = self._chance.randrange(-1, MOST_QUEUES)
        return send_fields(topic, queue_id, self._properties())

    def _send(self, broker: ServedBroker) -> None:
        topic = self._topic()
        number, body = self._message()
        fields = self._send_fields(topic)
        then = partial(self._run.history.answered, topic, [number])
        self._run.ask(broker, RequestCode.SEND_MESSAGE, fields, body, then)

    def _send_batch(self, broker: ServedBroker) -> None:
        topic = self._topic()
        count = 1 + self._chance.randrange(MOST_MESSAGES_A_BATCH)
        messages = [self._message() for _ in range(count)]
        body = encode_batch_body(
            BatchMessage(body, self._properties().encode()) for _, body in messages
        )
        fields = {**self._send_fields(topic), "batch": "true", "properties": ""}
        then = partial(self._run.history.answered, topic, [number for number, _ in messages])
        self._run.ask(broker, RequestCode.SEND_MESSAGE, fields, body, then)

    def _send_delayed(self, broker: ServedBroker) -> None:
        topic = self._topic()
        number, body = self._message()
        delay_ms = 1 + self._chance.randrange(LONGEST_DELAY_MS)
        due = self._chance.choice(("DELAY\x011\x02", f"TIMER_DELAY_MS\x01{delay_ms}\x02"))
        fields = self._send_fields(topic)
        fields["properties"] = f"{fields['properties']}{due}"

        def then(reply: Command) -> None:
            self._run.history.delayed_answered(number, reply)
            if "recallHandle" in reply.fields:
                self._handles.append((number, topic, reply.fields["recallHandle"]))
                del self._handles[:-MOST_HANDLES]

        self._run.ask(broker, RequestCode.SEND_MESSAGE, fields, body, then)

    def _recall(self, broker: ServedBroker) -> None:
        if self._handles:
            number, topic, handle = self._chance.choice(self._handles)
            fields = {"topic": topic, "recallHandle": handle}
            then = partial(self._run.history.recall_answered, number)
            self._run.ask(broker, RequestCode.RECALL_MESSAGE, fields, then=then)

    def _send_half(self, broker: ServedBroker) -> None:
        topic = self._topic()
        number, body = self._message()
        fields = self._send_fields(topic)
        due = self._chance.choice(("", "", "DELAY\x011\x02"))
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02{due}"
        fields["properties"] = f"{fields['properties']}{properties}"
        self._run.history.half_sent(number)

        def then(reply: Command) -> None:
            self._run.history.half_answered(number, reply)
            if reply.code == ResponseCode.SUCCESS:
                position = int(reply.fields["msgId"][-POSITION_DIGITS:], 16)
                half_offset = reply.fields["queueOffset"]
                end = {"commitLogOffset": position, "tranStateTableOffset": half_offset}
                self._halves.append((number, {**end, "producerGroup": PRODUCERS, "msgId": "x"}))
                del self._halves[:-MOST_HANDLES]

        self._run.ask(broker, RequestCode.SEND_MESSAGE, fields, body, then)

    def _end(self, broker: ServedBroker) -> None:
        """End a transaction, maybe for the second time, and now and then in the other way."""
        if self._halves:
            number, fields = self._chance.choice(self._halves)
            self._end_as(broker, number, fields, self._chance.happens(0.1))

    def _end_as(
        self, broker: ServedBroker, number: int, fields: Mapping[str, object], contradicts: bool
    ) -> None:
        commits = (number % 3 > 0) != contradicts
        how = COMMIT if commits else ROLLBACK
        self._run.history.end_asked(number, how)
        then = partial(self._run.history.end_answered, number, how)
        flag = TRANSACTION_COMMIT if commits else TRANSACTION_ROLLBACK
        fields = {**fields, "commitOrRollback": flag}
        self._run.ask(broker, RequestCode.END_TRANSACTION, fields, then=then)

    def _be_producer(self, broker: ServedBroker) -> None:
        """Join the producers, whom their broker asks how transactions have ended."""

        def asked(command: Command) -> None:
            self._run.coverage.count("questions about transactions")
            if not self._over and self._chance.happens(0.5):
                record, _end = decode_record(command.body)
                number = int.from_bytes(record.body[:NUMBER_BYTES], "big")
                names = ("commitLogOffset", "tranStateTableOffset", "msgId")
                fields = {name: command.fields[name] for name in names}
                self._end_as(broker, number, {**fields, "producerGroup": PRODUCERS}, False)

        body = encode_heartbeat(Heartbeat("P", [PRODUCERS]))
        broker.ask(Client(lambda _reply: None, asked), [Command(RequestCode.HEART_BEAT, body=body)])

    # --- consumers ------------------------------------------------------------------------------

    def _commit(self, broker: ServedBroker) -> None:
        topic, offset = self._topic(), self._run.history.new_offset()
        # The broker checks its topics when the request arrives, in a later turn.
        broker.before_requests(partial(self._note_topic, broker, topic, offset))
        fields = commit_fields(self._group(), topic, self._chance.randrange(MOST_QUEUES), offset)
        self._run.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def _note_topic(self, broker: ServedBroker, topic: str, offset: int) -> None:
        assert self.reference is not None
        if topic in broker.member.broker.state[TOPICS].configs:
            self.reference.advance(broker.applied)
            self._run.history.meant(offset, self.reference.model.born(topic, broker.applied))

    def _reset(self, broker: ServedBroker) -> None:
        """Move a group to a time, or to the end, in all queues or in one, as an operator does."""
        fields = {
            "group": self._group(),
            "topic": self._topic(),
            "timestamp": self._chance.choice((-1, broker.wall_clock_ms() - 2_000)),
            "isForce": str(self._chance.happens(0.7)).lower(),
            "queueId": self._chance.randrange(-1, MOST_QUEUES),
            "offset": self._chance.choice((-1, -1, 0)),
        }
        self._run.ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)

    def _send_back(self, broker: ServedBroker) -> None:
        """Send back one of the last messages, as a consumer does that failed with it."""
        places = list(self._run.history.stored.items())[-MOST_HANDLES:]
        if not places:
            return
        number, place = self._chance.choice(places)
        self._run.history.asked_back(number)
        fields = {
            "offset": place.position,
            "group": RETRYING,
            "delayLevel": self._chance.choice((-1, 0, 1, 1, 1)),
            "originMsgId": "x",
            "originTopic": place.topic,
            "maxReconsumeTimes": self._chance.choice((0, 16, 16)),
        }
        then = partial(self._run.history.back_answered, number)
        self._run.ask(broker, RequestCode.CONSUMER_SEND_MSG_BACK, fields, then=then)

    def _lock(self, broker: ServedBroker) -> None:
        chance, topic = self._chance, self._topic()
        queues = [MessageQueue(topic, GROUP, queue_id) for queue_id in range(MOST_QUEUES)]
        asked = chance.sample(queues, 1 + chance.randrange(MOST_QUEUES))
        body = encode_queue_lock(QueueLock(self._group(), chance.choice(CLIENTS), asked))
        lock, unlock = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
        self._run.ask(broker, chance.choice((lock, lock, unlock)), {}, body)

    def _ask(self, broker: ServedBroker) -> None:
        """Ask as consumers do when they begin; the answer reads consume queues and the log."""
        code = self._chance.choice(
            (
                RequestCode.GET_MIN_OFFSET,
                RequestCode.GET_MAX_OFFSET,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                RequestCode.GET_EARLIEST_MSG_STORETIME,
                RequestCode.QUERY_CONSUMER_OFFSET,
            )
        )
        fields = {
            "consumerGroup": self._group(),
            "topic": self._topic(),
            "queueId": self._chance.randrange(MOST_QUEUES),
            "timestamp": broker.wall_clock_ms() - self._chance.randrange(5_000),
        }
        self._run.ask(broker, code, fields)

    # --- administrators -------------------------------------------------------------------------

    def _put_topic(self, broker: ServedBroker) -> None:
        queues = 1 + self._chance.randrange(MOST_QUEUES)
        fields = {"topic": self._topic(), "readQueueNums": queues, "writeQueueNums": queues}
        self._run.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "perm": 6})

    def _delete_topic(self, broker: ServedBroker) -> None:
        fields = {"topic": self._topic()}
        self._run.ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, fields)

    def _put_group(self, broker: ServedBroker) -> None:
        group = {"groupName": self._group(), "retryMaxTimes": self._chance.randrange(20)}
        body = json.dumps(group).encode()
        self._run.ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)

    def _delete_group(self, broker: ServedBroker) -> None:
        clean = str(self._chance.happens(0.5)).lower()
        fields = {"groupName": self._group(), "cleanOffset": clean}
        self._run.ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

    # --- entries that no request makes ----------------------------------------------------------

    def _append_raw(self, broker: ServedBroker) -> None:
        count = 1 + self._chance.randrange(3)
        broker.append([self.raw.make(broker.wall_clock_ms()) for _ in range(count)])

    def _drop_log(self, broker: ServedBroker) -> None:
        broker.drop_log(self._chance.randint(0, max(0, broker.applied)))

    def _next_offset(self, topic: str, queue_id: int) -> int:
        leaders = [broker for broker in self._brokers.values() if broker.leads]
        if not leaders:
            return 0
        return leaders[0].member.broker.state[MESSAGES].queue_end(topic, queue_id)
