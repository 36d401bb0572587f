"""Consumers that pop: they get messages for a time, and acknowledge, hide or forget them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from jepsen_like.simulation.broker.asking import ClientRun
from jepsen_like.simulation.broker.raw_entries import MOST_QUEUES, NUMBER_BYTES
from jepsen_like.simulation.broker.served_broker import ServedBroker
from jepsen_like.simulation.node_settings import GROUP
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

# No client commits offsets of these groups, so only their pops move them.
GROUPS = ("Pops", "PopsInOrder")
FILTERS = ("*", "*", "A")
MOST_MESSAGES = 5
INVISIBLE_MS = (200, 3_000)
MOST_HANDLES = 40


class Given(NamedTuple):
    """A message that a consumer was given; `fields` are those of its acknowledgement."""

    number: int
    is_ordered: bool
    fields: Mapping[str, object]


class PopClients:
    """Requests of consumers that pop; the second of `groups` pops in order."""

    def __init__(
        self,
        run: ClientRun,
        purpose: str,
        topic: Callable[[], str],
        groups: tuple[str, str],
        filters: Sequence[str],
    ) -> None:
        self._run = run
        self._chance = run.chance(purpose)
        self._topic = topic
        self._groups = groups
        self._filters = filters
        self._given: list[Given] = []
        self._attempts = 0

    def pop(self, broker: ServedBroker) -> None:
        """Ask for some messages, of any queue or of one, at once or within a second."""
        chance, is_ordered = self._chance, self._chance.happens(0.4)
        self._attempts += not chance.happens(0.1)  # else it asks again, as after a lost answer
        fields = {
            "consumerGroup": self._groups[is_ordered],
            "topic": self._topic(),
            "queueId": chance.randrange(-1, MOST_QUEUES),
            "maxMsgNums": 1 + chance.randrange(MOST_MESSAGES),
            "invisibleTime": chance.choice(INVISIBLE_MS),
            "pollTime": chance.choice((0, 1_000)),
            "bornTime": broker.wall_clock_ms(),
            "initMode": 0,
            "order": str(is_ordered).lower(),
            "attemptId": f"a{self._attempts}",
            "exp": chance.choice(self._filters),
            "expType": "TAG",
        }
        then = partial(self._popped, fields, is_ordered, self._run.loop.now)
        self._run.ask(broker, RequestCode.POP_MESSAGE, fields, then=then)

    def _popped(
        self, asked: Mapping[str, object], is_ordered: bool, asked_s: float, reply: Command
    ) -> None:
        if reply.code != ResponseCode.SUCCESS:
            return
        kind, queue_id, first = reply.fields["startOffsetInfo"].split(" ")
        times = [reply.fields[name] for name in ("popTime", "invisibleTime", "reviveQid")]
        for record in decode_records(reply.body):
            number = int.from_bytes(record.body[:NUMBER_BYTES], "big")
            self._run.history.popped(number, is_ordered, asked_s)
            self._run.coverage.count("messages popped")
            handle = " ".join([first, *times, kind, GROUP, queue_id, str(record.queue_offset)])
            fields = {
                "consumerGroup": asked["consumerGroup"],
                "topic": asked["topic"],
                "queueId": queue_id,
                "offset": record.queue_offset,
                "extraInfo": handle,
            }
            self._given.append(Given(number, is_ordered, fields))
        del self._given[:-MOST_HANDLES]

    def ack(self, broker: ServedBroker) -> None:
        """Acknowledge a message, maybe one that was given again to another consumer."""
        if self._given:
            given, run = self._chance.choice(self._given), self._run

            def then(reply: Command) -> None:
                if reply.code == ResponseCode.SUCCESS:
                    run.coverage.count("pops acknowledged")
                    run.history.pop_acknowledged(given.number, given.is_ordered, run.loop.now)

            run.ask(broker, RequestCode.ACK_MESSAGE, given.fields, then=then)

    def hide(self, broker: ServedBroker) -> None:
        """Have a message given again sooner, or later."""
        if self._given:
            given = self._chance.choice(self._given)
            fields = {
                **given.fields,
                "invisibleTime": self._chance.choice(INVISIBLE_MS),
                "suspend": str(self._chance.happens(0.2)).lower(),
            }
            self._run.ask(broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
