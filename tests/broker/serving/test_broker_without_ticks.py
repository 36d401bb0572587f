"""What waits for the log goes on when it may, without a tick and while the clock stands still."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from broker.delay.deliveries import DELIVERIES
from broker.delay.state import DELAYS
from broker.groups.commands import PutGroup
from broker.groups.config import ConsumerGroup
from broker.serving.requests import Requests
from broker.serving.waiting_requests import WaitingRequests
from remoting.bodies.heartbeat import (
    ConsumerData,
    Heartbeat,
    SubscriptionData,
    encode_heartbeat,
)
from remoting.message.properties import encode_properties
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from tests.broker.broker_in_memory import broker_in_memory
from tests.broker.leader_script import (
    Refusing,
    Script,
    by_a_full_log,
    objects_below,
    pop_fields,
    pull_fields,
)
from tests.broker.one_broker import START_MS
from tests.broker.pop.popping_broker import popped


def a_send(script: Script) -> None:
    script.send("T", b"new")


def a_commit(script: Script) -> None:
    script.end(script.send("T", b"half", TRAN_MSG="true", PGROUP="P"), 8)


def a_delivery(script: Script) -> None:
    script.send("T", b"soon", TIMER_DELIVER_MS=str(START_MS + 5))
    script.there.now_ms += 10
    script.now_s += 0.01
    script.settle()


def a_deletion(script: Script) -> None:
    script.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")


def a_reset(script: Script) -> None:
    reset: dict[str, Any] = {"group": "g", "topic": "T", "timestamp": 0, "isForce": "true"}
    script.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)


def a_new_leader(script: Script) -> None:
    script.there.log.is_ready_leader = False
    script.there.requests.follow_role()


CAUSES: Final = (a_send, a_commit, a_delivery, a_deletion, a_new_leader)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        *((cause, kind) for cause in CAUSES for kind in ("pull", "pop", "pop in order")),
        # A pop that waits goes on where its group was moved to, with what comes there.
        (a_reset, "pull"),
    ],
)
def test_what_waits_for_the_log_is_answered_without_a_tick(
    cause: Callable[[Script], None], kind: str
) -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("T")
        script.ask(RequestCode.HEART_BEAT, encode_heartbeat(Heartbeat("c", ["P"])))
        there.fold(PutGroup(ConsumerGroup("g")))
        if kind == "pull":
            waits = script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 0))
        else:
            order = str(kind == "pop in order").lower()
            fields = pop_fields("T", 15_000, order=order)
            waits = script.begin(RequestCode.POP_MESSAGE, **fields)
        assert script.answer_to(waits) is None
        cause(script)
        assert script.answer_to(waits) is not None
        script.check_nothing_is_left_to_a_tick()


def test_a_pop_in_order_that_waits_for_another_goes_on_without_a_tick() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("P")
        script.send("P", b"first")
        script.send("P", b"second")
        [first] = popped(script.pop(order="true", invisibleTime=60_000))
        waits = script.begin(RequestCode.POP_MESSAGE, **pop_fields(poll_ms=15_000, order="true"))
        assert script.answer_to(waits) is None
        message: dict[str, Any] = {"consumerGroup": "g", "topic": "P", "queueId": 0, "offset": 0}
        script.ask(RequestCode.ACK_MESSAGE, extraInfo=first.handle, **message)
        found = script.answer_to(waits)
        assert found is not None
        assert [one.body for one in popped(found)] == [b"second"]


def test_pops_that_wait_for_one_queue_are_all_answered_without_a_tick() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("P")
        wait = [
            script.begin(RequestCode.POP_MESSAGE, **pop_fields(poll_ms=15_000)) for _ in range(3)
        ]
        properties = encode_properties({"UNIQ_KEY": "key"}).decode()
        sends = [
            script.command(
                RequestCode.SEND_MESSAGE_V2,
                b"message %d" % number,
                **{"a": "P", "b": "P", "c": "TBW102", "d": 1, "e": 0, "f": 0},
                **{"g": START_MS, "h": 0, "i": properties, "j": 0, "k": "false"},
            )
            for number in range(3)
        ]
        there.requests.on_commands(cast(Connection, there.client), sends)
        script.settle()
        found = [script.answer_to(number) for number in wait]
        bodies = [popped(reply)[0].body for reply in found if reply is not None]
        assert bodies == [b"message 0", b"message 1", b"message 2"]


def test_what_is_in_retentions_way_moves_without_a_tick() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("T")
        script.send("T", TIMER_DELAY_SEC="40")
        end = there.log.end
        there.parts[DELIVERIES].move_before(end)
        script.settle()
        first = there.machine.state[DELAYS].waiting.first_position()
        assert first is not None
        assert first >= end
        script.check_nothing_is_left_to_a_tick()


def test_nothing_of_a_client_is_kept_when_its_connection_has_ended() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        there.requests.on_open(cast(Connection, there.client))
        script.topic("T")
        script.topic("P")
        member = ConsumerData("g", subscriptions=[SubscriptionData("T", "*")])
        beat = encode_heartbeat(Heartbeat("c", ["P"], [member]))
        script.ask(RequestCode.HEART_BEAT, beat)
        script.send("T")
        script.send("P")
        script.send("T", TRAN_MSG="true", PGROUP="P")
        script.pop()
        script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 1))
        script.begin(RequestCode.POP_MESSAGE, **pop_fields("T", 15_000))
        script.begin(RequestCode.POP_MESSAGE, **pop_fields("P", 15_000, order="true"))
        reset: dict[str, Any] = {"group": "g", "topic": "T", "timestamp": 0, "isForce": "true"}
        script.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
        script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 0))
        script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 1))
        assert references_to(there.client, there.requests)
        assert waiting(there.requests) >= 2
        there.requests.on_close(cast(Connection, there.client))
        assert waiting(there.requests) == 0
        script.at(70)
        assert references_to(there.client, there.requests) == []


def waiting(requests: Requests) -> int:
    """How many pulls and pops wait."""
    return sum(len(one) for one in objects_below(requests) if isinstance(one, WaitingRequests))


def references_to(client: object, requests: Requests) -> list[str]:
    """The classes of a broker's objects that still know a client."""
    return [
        f"{type(one).__name__}: {type(each).__name__}"
        for one in objects_below(requests)
        for each in gc.get_referents(one)
        if each is client
    ]
