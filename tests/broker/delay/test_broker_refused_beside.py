"""What waits for an append that is refused goes on: for pops, deliveries, and a full window."""

from __future__ import annotations

from typing import Any

import pytest

from broker.delay import deliveries
from broker.delay.deliveries import DELIVERIES
from broker.delay.state import DELAYS
from broker.pop import acks
from remoting.wire.codes import RequestCode
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.leader_script import (
    WAYS,
    Refusing,
    Script,
    by_a_full_log,
    in_part,
    pop_fields,
)
from tests.broker.one_broker import START_MS
from tests.broker.pop.popping_broker import popped

# Longer than any pause after a refusal, until the leader tries again.
PATIENCE_S = 30


@pytest.mark.parametrize("order", ["true", "false"])
@pytest.mark.parametrize("way", WAYS)
def test_a_pop_that_waits_for_one_that_is_refused_is_given_the_message(
    way: str, order: str
) -> None:
    with broker_in_memory() as there:
        refusing = Refusing(there.log, -1, WAYS[way])
        script = Script(there, refusing)
        script.topic("P")
        script.pop()  # it makes the group
        script.send("P", b"only one")
        fields = pop_fields("P", 15_000, order=order)
        pops = [script.command(RequestCode.POP_MESSAGE, **fields) for _ in range(3)]
        refusing.refuse_next()
        there.together(pops)
        script.settle()
        told = [script.answer_to(one.opaque) for one in pops]
        given = [one for one in told if one is not None and one.code == 0]
        assert [[each.body for each in popped(one)] for one in given] == [[b"only one"]]
        script.check_nothing_is_left_to_a_tick()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_due_while_its_topic_is_deleted_is_delivered_when_that_is_refused(
    way: str,
) -> None:
    with broker_in_memory() as there:
        refusing = Refusing(there.log, -1, WAYS[way])
        script = Script(there, refusing)
        script.topic("T")
        script.send("T", b"soon", TIMER_DELIVER_MS=str(START_MS + 5_000))
        refusing.refuse_next()
        there.together([script.command(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")])
        there.now_ms += 6_000
        script.leap(6)
        there.parts[DELIVERIES].deliver()  # looks at it while the topic is being deleted
        script.settle()
        script.at(script.now_s + PATIENCE_S)
        assert [one.body for one in there.messages("T")] == [b"soon"]


def test_as_many_as_are_due_are_delivered_at_once_though_few_are_on_their_way_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliveries, "_UNDER_WAY_MESSAGES", 4)
    count = 50
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("T")
        for number in range(count):
            script.send("T", b"%d" % number, TIMER_DELIVER_MS=str(START_MS + 5_000))
        there.now_ms += 6_000
        script.leap(6)
        while there.parts[DELIVERIES].deliver() == 0:
            pass  # the log is slow: the window is full
        script._woken, script._deliver_at = False, script.now_s + 1
        script.settle()
        assert len(there.machine.state[DELAYS].waiting) == 0
        assert len(there.messages("T")) == count


@pytest.mark.parametrize("kind", ["acknowledgements", "offsets"])
@pytest.mark.parametrize("way", [*WAYS, "not at all"])
def test_what_gathered_behind_a_refused_entry_is_stored_without_a_tick(way: str, kind: str) -> None:
    is_refused = way in WAYS
    with broker_in_memory() as there:
        refusing = Refusing(there.log, -1, WAYS.get(way, by_a_full_log))
        script = Script(there, refusing)
        script.topic("P")
        for _ in range(4):
            script.send("P")
        out = [popped(script.pop(invisibleTime=60_000))[0] for _ in range(4)]
        queue: dict[str, Any] = {"topic": "P", "queueId": 0}
        script.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **queue, consumerGroup="h", commitOffset=0)
        if is_refused:
            refusing.refuse_next()
        asked: list[int] = []
        for at, one in enumerate(out):
            if kind == "offsets":
                code = RequestCode.UPDATE_CONSUMER_OFFSET
                fields = {**queue, "consumerGroup": "h", "commitOffset": at + 1}
            else:
                code = RequestCode.ACK_MESSAGE
                offset = one.record.queue_offset
                fields = {**queue, "consumerGroup": "g", "offset": offset, "extraInfo": one.handle}
            command = script.command(code, **fields)
            asked.append(command.opaque)
            there.together([command])
        script.settle()
        codes = [None if reply is None else reply.code for reply in map(script.answer_to, asked)]
        assert codes[1:] == [0, 0, 0]
        assert codes[0] is not None
        assert (codes[0] != 0) is is_refused


@pytest.mark.parametrize("count", [1, 2])
def test_a_pop_in_order_goes_on_behind_what_was_acknowledged_though_others_were_refused(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "MAX_ACKS", 1)
    topics = ["P", *(f"P{number}" for number in range(count))]
    with broker_in_memory() as there:
        refusing = Refusing(there.log, -1, in_part)
        script = Script(there, refusing)
        wanted: list[dict[str, Any]] = []
        for topic in topics:
            script.topic(topic)
            for _ in range(2):
                script.send(topic, topic.encode())
            first = script.pop(topic=topic, order="true", invisibleTime=60_000)
            (one,) = popped(first)
            queue = {"consumerGroup": "g", "topic": topic, "queueId": 0}
            offset = one.record.queue_offset
            wanted.append({**queue, "offset": offset, "extraInfo": one.handle})
        second = pop_fields("", 15_000, order="true", invisibleTime=60_000)
        waiting = [
            script.begin(RequestCode.POP_MESSAGE, **{**second, "topic": topic}) for topic in topics
        ]
        assert [script.answer_to(one) for one in waiting] == [None] * len(topics)
        refusing.refuse_next()
        there.together([script.command(RequestCode.ACK_MESSAGE, **each) for each in wanted])
        script.settle()
        given = [script.answer_to(one) for one in waiting]
        bodies = [None if one is None else [each.body for each in popped(one)] for one in given]
        assert bodies == [None, *([topic.encode()] for topic in topics[1:])]


@pytest.mark.parametrize("way", ["after a while", "by the fold"])
def test_a_delivery_that_is_refused_is_tried_again_after_the_pause_for_that(way: str) -> None:
    with broker_in_memory() as there:
        refusing = Refusing(there.log, -1, WAYS[way])
        script = Script(there, refusing)
        script.topic("T")
        script.send("T", b"soon", TIMER_DELIVER_MS=str(START_MS + 5_000))
        there.now_ms += 6_000
        script.leap(6)
        refusing.refuse_next()
        there.parts[DELIVERIES].deliver()
        assert there.parts[DELIVERIES].deliver() > deliveries._RETRY_S
        script._woken, script._deliver_at = False, script.now_s + 1
        script.settle()
        assert script._deliver_at <= script.now_s + deliveries._RETRY_S
