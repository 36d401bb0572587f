"""Receiving by a proxy: what is given, to whom, and when it comes again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as some
from trio.testing import MockClock

from dledger_mq import Message as RemotingMessage
from dledger_mq import Producer
from proxy.http2.limits import Limits
from proxy.receiving import receives
from proxy.receiving.receipt_handle import ReceiptHandle, read_handle
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import (
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    Message,
    ReceiveMessageRequest,
)
from remoting.message.java_hash import java_hash
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.proxy.grpc_client import GrpcClient, GrpcFailed, Received
from tests.proxy.real_proxy import (
    ShiftedClock,
    acknowledging,
    changing,
    message,
    real_proxy,
    receive_some,
    receiving,
    send,
)
from tests.proxy.scripted_brokers import ScriptedProxy, record, scripted_proxy

POP = RequestCode.POP_MESSAGE
CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
TOPIC = "Orders"
RESOURCE_EXHAUSTED = 8


async def test_a_waiting_receive_is_woken_by_a_message(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client, producer = await here.client(), await here.client()
        found: list[Received] = []

        async def receive() -> None:
            found.append(await client.receive(receiving(topic, wait_s=20)))

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            while not here.proxy.figures.calls["ReceiveMessage"]:  # noqa: ASYNC110
                await trio.sleep(0.01)
            await send(producer, message(topic, b"at last"))
        assert trio.current_time() - began < 10
        (answer,) = found
        assert (answer.code, answer.bodies, answer.given_at) == (Code.OK, [b"at last"], True)
        system = answer.messages[0].system_properties
        assert system.invisible_duration.ToSeconds() == 30
        assert system.receipt_handle
        nothing = await client.receive(receiving(topic))
        assert (nothing.code, nothing.messages) == (Code.MESSAGE_NOT_FOUND, [])
        assert nothing.given_at


async def test_a_group_gets_each_message_once_and_32_at_a_time(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client = await here.client()
        await send(client, *(message(topic, b"%d" % number) for number in range(40)))
        first = await client.receive(receiving(topic, batch=100))
        second = await client.receive(receiving(topic, batch=3))
        third = await client.receive(receiving(topic, wait_s=1.0))
        assert [len(answer.messages) for answer in (first, second, third)] == [32, 3, 5]
        whole = {body for answer in (first, second, third) for body in answer.bodies}
        assert whole == {b"%d" % number for number in range(40)}
        others = await receive_some(client, topic, 40, group="others")
        assert len(others) == 40


async def test_tags_and_conditions_choose_messages(tmp_path: Path) -> None:
    """Brokers compare hashes of tags: another tag with the same one is not given."""
    assert java_hash("Aa") == java_hash("BB")
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client = await here.client()
        sent = [
            message(topic, body, tag=tag, user={"size": size})
            for body, tag, size in ((b"1", "Aa", "1"), (b"2", "BB", "2"), (b"3", "c", "3"))
        ]
        for one in sent:
            await send(client, one)
        by_tag = await client.receive(receiving(topic, "tags", tag="BB", wait_s=1.0))
        assert by_tag.bodies == [b"2"]
        both = await receive_some(client, topic, 2, group="both", tag="Aa || c")
        assert sorted(one.body for one in both) == [b"1", b"3"]
        by_size = await client.receive(receiving(topic, "sizes", sql="size > 1", wait_s=1.0))
        assert sorted(by_size.bodies) == [b"2", b"3"]
        wrong = await client.receive(receiving(topic, "wrong", sql="size >"))
        assert wrong.code in (Code.ILLEGAL_FILTER_EXPRESSION, Code.INTERNAL_SERVER_ERROR)


async def test_a_message_that_is_not_wanted_is_acknowledged(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        here.brokers.given = [[record(TOPIC, 1, TAGS="Aa"), record(TOPIC, 2, b"BB", TAGS="BB")]]
        client = await here.client()
        answer = await client.receive(receiving(TOPIC, tag="BB"))
        assert answer.bodies == [b"BB"]
        await trio.testing.wait_all_tasks_blocked()
        assert [one.fields["offset"] for one in here.brokers.of(RequestCode.ACK_MESSAGE)] == ["1"]


async def test_each_limit_of_a_receive_has_its_code(autojump_clock: MockClock) -> None:
    good = receiving(TOPIC)
    least, most = 10.0, 12 * 3600.0
    cases: tuple[tuple[ReceiveMessageRequest, int], ...] = (
        (good, Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, invisible_s=least), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, invisible_s=least - 0.001), Code.ILLEGAL_INVISIBLE_TIME),
        (receiving(TOPIC, invisible_s=most), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, invisible_s=most + 0.001), Code.ILLEGAL_INVISIBLE_TIME),
        (receiving(TOPIC, invisible_s=None), Code.ILLEGAL_INVISIBLE_TIME),
        (receiving(TOPIC, auto_renew=True), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, batch=1), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, batch=0), Code.BAD_REQUEST),
        (receiving(TOPIC, attempt="a" * 64), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, attempt="a" * 65), Code.BAD_REQUEST),
        (receiving(TOPIC, tag=""), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, tag="a||b"), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, tag="||"), Code.ILLEGAL_FILTER_EXPRESSION),
        (receiving(TOPIC, tag="a" * 8192), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, tag="a" * 8193), Code.ILLEGAL_FILTER_EXPRESSION),
        (receiving(TOPIC, sql=" "), Code.ILLEGAL_FILTER_EXPRESSION),
        (receiving("a b"), Code.ILLEGAL_TOPIC),
        (receiving("a" * 128), Code.ILLEGAL_TOPIC),
        (receiving("TBW102"), Code.ILLEGAL_TOPIC),
        (receiving("RMQ_SYS_x"), Code.ILLEGAL_TOPIC),
        (receiving(TOPIC, "g" * 120), Code.MESSAGE_NOT_FOUND),
        (receiving(TOPIC, "g" * 121), Code.ILLEGAL_CONSUMER_GROUP),
        (receiving(TOPIC, "CID_RMQ_SYS_x"), Code.ILLEGAL_CONSUMER_GROUP),
        (receiving(TOPIC, broker=""), Code.BAD_REQUEST),
        (receiving("Nowhere"), Code.TOPIC_NOT_FOUND),
    )
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        client = await here.client()
        for request, code in cases:
            answer = await client.receive(request)
            assert answer.code == code, (request, answer.text)
            assert answer.given_at


async def test_the_longest_group_receives_and_a_longer_one_is_refused_by_its_name(
    tmp_path: Path,
) -> None:
    """Brokers have topics named like the group, with a prefix."""
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client = await here.client()
        await send(client, message(topic))
        received = await client.receive(receiving(topic, "g" * 120))
        assert (received.code, len(received.messages)) == (Code.OK, 1)
        refused = await client.receive(receiving(topic, "g" * 121))
        assert refused.code == Code.ILLEGAL_CONSUMER_GROUP


async def test_a_receive_waits_within_its_deadline(autojump_clock: MockClock) -> None:
    """The wait is the client's, at most 20 s and the deadline; a deadline too short is told."""
    expected: tuple[tuple[float, float | None, float], ...] = (
        (0.0, 23.0, 0.0),
        (1.0, 23.0, 1.0),
        (20.0, 23.0, 20.0),
        (60.0, 23.0, 20.0),
        (60.0, None, 20.0),
        (20.0, 8.0, 7.7),
    )
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        client = await here.client()
        for wait_s, timeout_s, held_s in expected:
            await client.receive(receiving(TOPIC, wait_s=wait_s), timeout_s=timeout_s)
            held_ms = int(here.brokers.of(POP)[-1].fields["pollTime"])
            assert held_ms == pytest.approx(held_s * 1000, abs=50)
        short = await client.receive(receiving(TOPIC, wait_s=4.0), timeout_s=3.0)
        assert short.code == Code.ILLEGAL_POLLING_TIME
        unset = receiving(TOPIC)
        unset.ClearField("long_polling_timeout")
        await client.receive(unset)
        assert int(here.brokers.of(POP)[-1].fields["pollTime"]) == pytest.approx(20_000, abs=50)


async def test_busy_brokers_and_elections_while_receiving(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        brokers = here.brokers
        brokers.topic(TOPIC)
        client = await here.client()
        brokers.answers[POP] = lambda command: command.reply(ResponseCode.POLLING_FULL)
        assert (await client.receive(receiving(TOPIC))).code == Code.TOO_MANY_REQUESTS
        brokers.answers[POP] = lambda command: command.reply(ResponseCode.NO_PERMISSION)
        assert (await client.receive(receiving(TOPIC))).code == Code.UNAUTHORIZED
        route = brokers.routes_of[TOPIC]
        brokers.without_leader(TOPIC)
        async with trio.open_nursery() as nursery:

            async def elect() -> None:
                await trio.sleep(2)
                brokers.routes_of[TOPIC] = route
                brokers.given = [[record(TOPIC, 1, b"after it")]]
                brokers.answers[POP] = brokers.popped

            nursery.start_soon(elect)
            answer = await client.receive(receiving(TOPIC, wait_s=20))
        assert answer.bodies == [b"after it"]
        brokers.without_leader(TOPIC)
        began = trio.current_time()
        answer = await client.receive(receiving(TOPIC, wait_s=3))
        assert answer.code == Code.MESSAGE_NOT_FOUND
        assert trio.current_time() - began == pytest.approx(3, abs=0.5)


async def test_a_frozen_leader_holds_no_receive_longer_than_its_successor_leads(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        brokers = here.brokers
        brokers.topic(TOPIC)
        client = await here.client()
        brokers.answers[POP] = lambda _command: None

        async def elect() -> None:
            await trio.sleep(2)
            brokers.given = [[record(TOPIC, 1, b"of the new leader")]]
            brokers.answers[POP] = brokers.popped
            brokers.elect_another(TOPIC)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect)
            began = trio.current_time()
            answer = await client.receive(receiving(TOPIC, wait_s=20))
        assert answer.bodies == [b"of the new leader"]
        assert trio.current_time() - began == pytest.approx(2, abs=0.5)


def _replies(fields: dict[str, str], body: bytes) -> Callable[[Command], Command]:
    return lambda command: command.reply(0, fields, body)


async def test_a_body_or_a_field_that_is_wrong_is_an_error_of_the_broker(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        client = await here.client()
        times = {"popTime": "1", "invisibleTime": "1"}
        for fields, body in (({}, b""), (times, b"rubbish"), ({"popTime": "x"}, b"")):
            here.brokers.answers[POP] = _replies(fields, body)
            answer = await client.receive(receiving(TOPIC))
            assert answer.code == Code.INTERNAL_SERVER_ERROR
        damaged = MessageRecord(
            TOPIC, b"no zlib", encode_properties({"UNIQ_KEY": "1"}), 0, system_flag=1
        )
        here.brokers.answers[POP] = here.brokers.popped
        here.brokers.given = [[damaged, record(TOPIC, 2, b"good")]]
        assert (await client.receive(receiving(TOPIC))).bodies == [b"good"]


def _given_back(here: ScriptedProxy) -> list[tuple[str, str]]:
    return [(one.fields["offset"], one.fields["invisibleTime"]) for one in here.brokers.of(CHANGE)]


async def test_messages_for_a_receive_that_ends_meanwhile_are_visible_in_a_second(
    autojump_clock: MockClock,
) -> None:
    """Its client cancels it, its deadline passes, or its connection ends."""

    async def end(client: GrpcClient, how: str) -> None:
        call = await client.call("ReceiveMessage", timeout_s=2.0 if how == "deadline" else 23.0)
        await call.send(receiving(TOPIC, wait_s=1.0), is_last=True)
        await trio.sleep(0.5)
        match how:
            case "cancel":
                await call.cancel()
            case "close":
                await client.close()
            case _:
                with pytest.raises(GrpcFailed):
                    await call.receive()

    for how in ("cancel", "deadline", "close"):
        async with scripted_proxy() as here:
            here.brokers.topic(TOPIC)
            here.brokers.given = [[record(TOPIC, 1), record(TOPIC, 2)]]
            here.brokers.slow_s[POP] = 3.0
            client = await here.client()
            await end(client, how)
            assert _given_back(here) == []
            await trio.sleep(10)
            assert _given_back(here) == [("1", "1000"), ("2", "1000")], how
            assert len(here.proxy.renewals) == 0


async def test_what_a_client_does_not_take_is_given_back(autojump_clock: MockClock) -> None:
    """It leaves its window closed: the messages that fit were taken."""
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        here.brokers.given = [[record(TOPIC, number, bytes(30_000)) for number in range(8)]]
        client = await here.client(limits=Limits(unread_s=30.0))
        client.takes = False
        call = await client.call("ReceiveMessage", timeout_s=23.0)
        await call.send(receiving(TOPIC, auto_renew=True), is_last=True)
        await trio.sleep(5)
        assert len(here.proxy.renewals) == 3
        await trio.sleep(30)
        given_back = [offset for offset, _time in _given_back(here)]
        assert given_back == ["2", "3", "4", "5", "6", "7"]
        assert len(here.proxy.renewals) == 2
        neighbour = await here.client()
        assert (await neighbour.receive(receiving(TOPIC))).code == Code.MESSAGE_NOT_FOUND


async def test_a_delivery_that_nobody_has_seen_counts_as_no_attempt(tmp_path: Path) -> None:
    """Otherwise a message could become a dead letter that no consumer was ever given."""
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        gone, client = await here.client(), await here.client()
        await send(client, message(topic, bytes(100_000)))
        for _ in range(2):
            call = await gone.call("ReceiveMessage")
            gone.takes = False
            await call.send(receiving(topic, wait_s=5), is_last=True)
            await call.until_headers()
            await call.cancel()
        (one,) = await receive_some(client, topic, 1)
        assert one.system_properties.delivery_attempt == 1


async def test_messages_that_clients_do_not_take_are_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receives, "MAX_HELD_BYTES", 500_000)
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        here.brokers.given = [[record(TOPIC, number, bytes(300_000))] for number in range(3)]
        client = await here.client(limits=Limits(unread_s=30.0))
        client.takes = False
        call = await client.call("ReceiveMessage", timeout_s=23.0)
        await call.send(receiving(TOPIC), is_last=True)
        await trio.sleep(1)
        neighbour = await here.client()
        refused = await neighbour.receive(receiving(TOPIC))
        assert (refused.code, refused.messages) == (Code.TOO_MANY_REQUESTS, [])
        await trio.sleep(1)
        assert _given_back(here) == [("1", "1000")]
        await client.close()
        await trio.sleep(1)
        assert (await neighbour.receive(receiving(TOPIC))).code == Code.OK


async def test_messages_that_clients_of_one_host_do_not_take_leave_room_for_those_of_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receives, "MAX_HELD_BYTES", 1_000_000)
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        here.brokers.given = [[record(TOPIC, number, bytes(100_000))] for number in range(11)]
        greedy = await here.client(peer="10.0.0.1:1")
        greedy.takes = False
        for _ in range(10):
            call = await greedy.call("ReceiveMessage", timeout_s=23.0)
            await call.send(receiving(TOPIC), is_last=True)
            await trio.sleep(0.1)
        other = await here.client(peer="10.0.0.2:1")
        assert (await other.receive(receiving(TOPIC))).code == Code.OK
        await trio.sleep(1)
        assert [offset for offset, _time in _given_back(here)] == ["8", "9"]


async def test_a_client_that_takes_a_little_keeps_no_room_from_others_for_long(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receives, "MAX_HELD_BYTES", 500_000)
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        here.brokers.given = [[record(TOPIC, number, bytes(400_000))] for number in range(4)]
        slow = await here.client(limits=Limits(min_taken_bytes=0))
        slow.takes = False
        call = await slow.call("ReceiveMessage", timeout_s=None)
        await call.send(receiving(TOPIC), is_last=True)
        neighbour = await here.client()
        for pause_s, code in ((29, Code.TOO_MANY_REQUESTS), (2, Code.TOO_MANY_REQUESTS)):
            await trio.sleep(pause_s)
            assert (await neighbour.receive(receiving(TOPIC))).code == code
        await trio.sleep(0.1)
        assert (await neighbour.receive(receiving(TOPIC))).code == Code.OK
        with pytest.raises(GrpcFailed) as failed:
            await Received.read(call)
        assert failed.value.code == RESOURCE_EXHAUSTED
        assert sorted(offset for offset, _time in _given_back(here)) == ["0", "1", "2"]


async def test_handles_hold_at_every_proxy_and_a_change_gives_a_new_one(tmp_path: Path) -> None:
    clock = ShiftedClock()
    async with real_proxy(tmp_path, clock=clock) as here, here.another() as other:
        topic = await here.topic(TOPIC)
        client, elsewhere = await here.client(), await other.client()
        await send(client, *(message(topic, b"%d" % number) for number in range(3)))
        first, second, third = await receive_some(client, topic, 3)
        done = await elsewhere.unary(acknowledging(topic, first))
        assert done.status.code == Code.OK
        again = await client.unary(acknowledging(topic, first, second))
        assert again.entries[1].status.code == Code.OK
        handle = third.system_properties.receipt_handle
        changed = await elsewhere.unary(changing(topic, handle, 100))
        assert changed.status.code == Code.OK
        assert changed.receipt_handle != handle
        clock.ahead_ms += 60_000
        assert (await client.receive(receiving(topic))).code == Code.MESSAGE_NOT_FOUND
        now = await client.unary(changing(topic, changed.receipt_handle, 0))
        assert now.status.code == Code.OK
        (last,) = await receive_some(client, topic, 1)
        assert last.body == third.body
        assert last.system_properties.delivery_attempt == 2
        assert last.topic.name == topic
        old = await client.unary(acknowledging(topic, handle))
        assert old.status.code == Code.INVALID_RECEIPT_HANDLE, "it is of an earlier delivery"
        assert (await client.unary(acknowledging(topic, last))).status.code == Code.OK
        mixed = await client.unary(acknowledging(topic, last, "rubbish", "a b c d e f g h i"))
        codes = [entry.status.code for entry in mixed.entries]
        assert codes[1:] == [Code.INVALID_RECEIPT_HANDLE] * 2


async def test_changes_beyond_their_limits_are_refused(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        client = await here.client()
        handle = "0 1 1 0 0 broker-a 0 0 0"
        for seconds, code in (
            *((0.0, Code.OK), (-0.001, Code.ILLEGAL_INVISIBLE_TIME)),
            *((43_200.0, Code.OK), (43_200.001, Code.ILLEGAL_INVISIBLE_TIME)),
        ):
            answer = await client.unary(changing(TOPIC, handle, seconds))
            assert answer.status.code == code, seconds
        await client.unary(changing(TOPIC, handle, 5, suspend=True))
        assert here.brokers.of(CHANGE)[-1].fields["suspend"] == "true"
        assert here.brokers.of(CHANGE)[0].fields["invisibleTime"] == "1"
        nothing = await client.unary(acknowledging(TOPIC))
        assert nothing.status.code == Code.BAD_REQUEST
        many = await client.unary(acknowledging(TOPIC, *["rubbish"] * 1025))
        assert many.status.code == Code.BAD_REQUEST


async def test_a_handle_of_an_unknown_broker_is_refused_at_once(
    autojump_clock: MockClock,
) -> None:
    """Clients repeat for ever what fails for another reason than the handle."""
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        client = await here.client()
        began = trio.current_time()
        handle = "0 1 1 0 0 broker-x 0 0 0"
        for request in (acknowledging(TOPIC, handle), changing(TOPIC, handle, 10)):
            answer = await client.unary(request, timeout_s=3)
            assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
        assert trio.current_time() - began < 1
        here.brokers.without_leader(TOPIC)
        held = await client.unary(acknowledging(TOPIC, handle.replace("-x", "-a")), timeout_s=30)
        assert held.status.code == Code.HA_NOT_AVAILABLE
        del here.brokers.routes_of[TOPIC]
        for request in (acknowledging(TOPIC, handle), changing(TOPIC, handle, 10)):
            answer = await client.unary(request, timeout_s=3)
            assert answer.status.code == Code.INVALID_RECEIPT_HANDLE, "its topic is gone"


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.MESSAGE_ILLEGAL])
async def test_an_acknowledgement_in_a_topic_or_queue_that_is_gone_is_not_repeated(
    code: ResponseCode, autojump_clock: MockClock
) -> None:
    """Clients repeat it every second, unless the handle is refused."""
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        here.brokers.answers[RequestCode.ACK_MESSAGE] = lambda command: command.reply(code)
        client = await here.client()
        refused = await client.unary(acknowledging(TOPIC, "0 1 1 0 0 broker-a 0 0 0"))
        assert refused.status.code == Code.INVALID_RECEIPT_HANDLE


async def test_a_message_is_settled_after_its_topic_was_closed_to_readers(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client = await here.client()
        await send(client, message(topic))
        (one,) = await receive_some(client, topic, 1)
        await here.permit(topic, 2)
        async with here.another() as other:
            elsewhere = await other.client()
            assert (await elsewhere.unary(acknowledging(topic, one))).status.code == Code.OK
            refused = await elsewhere.receive(receiving(topic))
            assert refused.code == Code.BAD_REQUEST


async def test_a_message_becomes_a_dead_letter_when_its_client_says_so(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client = await here.client()
        await send(client, message(topic, b"poison", tag="t"))
        (given,) = await receive_some(client, topic, 1)
        system = given.system_properties
        request = ForwardMessageToDeadLetterQueueRequest(
            receipt_handle=system.receipt_handle, message_id=system.message_id
        )
        request.topic.name, request.group.name = topic, "readers"
        assert (await client.unary(request)).status.code == Code.OK
        (letter,) = await receive_some(client, "%DLQ%readers", 1, group="undertakers")
        assert letter.body == b"poison"
        assert letter.system_properties.dead_letter_queue.topic == topic
        assert letter.system_properties.dead_letter_queue.message_id
        assert letter.system_properties.message_id == system.message_id
        late = await client.unary(acknowledging(topic, given))
        assert late.status.code in (Code.OK, Code.INVALID_RECEIPT_HANDLE)
        request.receipt_handle = "rubbish"
        assert (await client.unary(request)).status.code == Code.INVALID_RECEIPT_HANDLE


async def test_a_dead_letter_is_made_once_and_only_by_the_consumer_that_has_the_message(
    tmp_path: Path,
) -> None:
    """The clients in Java, Go and C# repeat it every second until the answer is OK."""
    clock = ShiftedClock()
    async with real_proxy(tmp_path, clock=clock) as here, here.another() as other:
        topic = await here.topic(TOPIC)
        late, other_client = await here.client(), await other.client()
        await send(late, message(topic, b"poison"))
        (first,) = await receive_some(late, topic, 1)
        clock.ahead_ms += 60_000
        (second,) = await receive_some(other_client, topic, 1)
        for given_again in (first, first):
            assert (await late.unary(_burying(topic, given_again))).status.code == Code.OK
        assert "%DLQ%readers" not in await here.admin.topics()
        for _attempt in range(3):
            assert (await other_client.unary(_burying(topic, second))).status.code == Code.OK
        assert len(await receive_some(late, "%DLQ%readers", 1, group="undertakers")) == 1
        more = await late.receive(receiving("%DLQ%readers", "undertakers"))
        assert more.messages == []
        clock.ahead_ms += 120_000
        assert (await late.receive(receiving(topic))).messages == []


async def test_a_message_whose_broker_or_topic_is_gone_is_given_up_once(
    autojump_clock: MockClock,
) -> None:
    """Clients repeat it until the answer is OK."""
    async with scripted_proxy() as here:
        here.brokers.topic(TOPIC)
        client = await here.client()
        one = Message()
        one.system_properties.receipt_handle = "0 1 1 0 0 broker-x 0 0 0"
        for topic in (TOPIC, "Deleted"):
            assert (await client.unary(_burying(topic, one))).status.code == Code.OK
        assert here.brokers.of(RequestCode.CONSUMER_SEND_MSG_BACK) == []


def _burying(topic: str, one: Message) -> ForwardMessageToDeadLetterQueueRequest:
    system = one.system_properties
    made = ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=system.receipt_handle, message_id=system.message_id
    )
    made.topic.name, made.group.name = topic, "readers"
    return made


@pytest.mark.parametrize("name", ["a-lite-topic", "two words", "x" * 200])
async def test_a_message_with_a_lite_topic_in_an_ordinary_topic_can_be_settled(
    tmp_path: Path, name: str
) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client = await here.client()
        async with Producer("writers", client=here.group.client) as producer:
            await producer.send(RemotingMessage(topic, b"odd", properties={"__LITE_TOPIC": name}))
        (odd,) = await receive_some(client, topic, 1)
        later = await client.unary(changing(topic, odd.system_properties.receipt_handle, 60))
        assert later.status.code == Code.OK
        done = await client.unary(acknowledging(topic, odd))
        assert done.status.code == Code.OK


async def test_an_ordered_group_gets_one_part_of_a_queue_at_a_time(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC, "FIFO")
        group = await here.consumer_group("ordered", consumeMessageOrderly=True)
        client = await here.client()
        for number in range(4):
            await send(client, message(topic, b"%d" % number, message_group="g"))
        asked = receiving(topic, group, batch=2, attempt="first try")
        first = await client.receive(asked)
        assert first.bodies == [b"0", b"1"]
        repeated = await client.receive(asked)
        assert repeated.bodies == [b"0", b"1"]
        other = await client.receive(receiving(topic, group, batch=2, attempt="another"))
        assert other.code == Code.MESSAGE_NOT_FOUND
        unnamed = await client.receive(receiving(topic, group, batch=2))
        assert unnamed.code == Code.MESSAGE_NOT_FOUND
        for one in repeated.messages:
            done = await client.unary(acknowledging(topic, one, group=group))
            assert done.status.code == Code.OK
        rest = await client.receive(receiving(topic, group, batch=9, attempt="another"))
        assert rest.bodies == [b"2", b"3"]


async def test_a_receive_of_an_unknown_client_is_served(tmp_path: Path) -> None:
    """Without settings, heartbeats or a stream: so it is after a proxy's restart."""
    async with real_proxy(tmp_path) as here:
        topic = await here.topic(TOPIC)
        client = await here.client("never@heard@of")
        await send(client, message(topic))
        (given,) = await receive_some(client, topic, 1)
        assert (await client.unary(acknowledging(topic, given))).status.code == Code.OK
        nameless = await here.client(None)
        answer = await nameless.receive(receiving(topic))
        assert answer.code == Code.CLIENT_ID_REQUIRED


_numbers = some.integers(0, 2**63 - 1)


@given(
    handle=some.builds(
        ReceiptHandle,
        *(_numbers, _numbers, _numbers, _numbers, some.sampled_from(["0", "1", "2"])),
        some.text("abcXYZ09-_.%", min_size=1, max_size=60),
        *(
            some.integers(0, 2**31 - 1),
            _numbers,
            _numbers,
            some.just("") | some.text("aZ0-_", min_size=1, max_size=64),
        ),
    )
)
def test_a_handle_is_read_as_it_was_written(handle: ReceiptHandle) -> None:
    assert read_handle(str(handle)) == handle


_WORDS = ("0", "1700000000000", "60000", "0", "0", "broker-a", "0", "7", "7000")
_RUBBISH = ("", "-1", "+1", "1.0", "1e3", "x", "٣", "9" * 25, "0x1", "\0", "1\n", "None", "é" * 600)


def test_a_handle_with_a_wrong_word_is_refused_as_one() -> None:
    read_handle(" ".join(_WORDS))
    for place in range(len(_WORDS)):
        for wrong in _RUBBISH:
            words = [*_WORDS[:place], wrong, *_WORDS[place + 1 :]]
            if place == 5 and wrong not in ("", "\0", "1\n", "é" * 600):
                continue  # a broker may have such a name
            with pytest.raises(Refused) as refused:
                read_handle(" ".join(words))
            assert refused.value.code == Code.INVALID_RECEIPT_HANDLE, (place, wrong)
    with pytest.raises(Refused):
        read_handle(" ".join([*_WORDS[:6], str(2**31), *_WORDS[7:]]))  # no queue has such a number
    for text in ("", " ", " ".join(_WORDS[:8]), " ".join((*_WORDS, "a b")), " ".join(_WORDS) + " "):
        with pytest.raises(Refused):
            read_handle(text)


@given(text=some.text(max_size=200))
def test_any_text_is_a_handle_or_is_refused(text: str) -> None:
    with suppress(Refused):
        assert str(read_handle(text)) == text
