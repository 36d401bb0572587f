"""Transactions: ended by any proxy, and asked about by brokers when nobody ends them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as some
from trio.testing import MockClock

from broker.transactions.policy import CheckPolicy
from proxy.brokers import beside
from proxy.sending.producer_groups import MAX_GROUPS
from proxy.sending.transaction_id import TransactionId, read_transaction_id
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import (
    Code,
    EndTransactionRequest,
    MessageType,
    TransactionResolution,
    TransactionSource,
)
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, encode_record
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.proxy.grpc_client import GrpcClient, Telemetry
from tests.proxy.real_proxy import message, real_proxy, receive_some, receiving, send, sending
from tests.proxy.scripted_brokers import ScriptedProxy, scripted_proxy
from tests.proxy.settings_of_clients import producer_settings

COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK
OFTEN = CheckPolicy(after_s=1, every_s=1)


def ending(
    topic: str,
    transaction_id: str,
    resolution: TransactionResolution = COMMIT,
    source: TransactionSource = TransactionSource.SOURCE_CLIENT,
) -> EndTransactionRequest:
    made = EndTransactionRequest(
        transaction_id=transaction_id, message_id="an id", resolution=resolution, source=source
    )
    made.topic.name = topic
    return made


async def half(client: GrpcClient, topic: str, body: bytes = b"half") -> str:
    """Send a half message; the id of its transaction."""
    sent = message(topic, body, message_type=MessageType.TRANSACTION)
    (entry,) = (await send(client, sent)).entries
    assert entry.transaction_id
    return entry.transaction_id


async def test_any_proxy_ends_a_transaction_also_after_a_restart(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Payments", "TRANSACTION")
        client = await here.client()
        committed = await half(client, topic, b"committed")
        rolled_back = await half(client, topic, b"rolled back")
        async with here.another() as other:
            elsewhere = await other.client()
            nothing = await elsewhere.receive(receiving(topic))
            assert nothing.code == Code.MESSAGE_NOT_FOUND
            unspecified = TransactionSource.SOURCE_UNSPECIFIED  # as the client in Go sends
            for transaction_id, how in ((committed, COMMIT), (rolled_back, ROLLBACK)):
                answer = await elsewhere.unary(ending(topic, transaction_id, how, unspecified))
                assert answer.status.code == Code.OK
            (got,) = await receive_some(elsewhere, topic, 1)
            assert got.body == b"committed"
            nothing = await elsewhere.receive(receiving(topic))
            assert nothing.code == Code.MESSAGE_NOT_FOUND


@pytest.mark.parametrize("permission", [0, 2, 4])
async def test_a_transaction_ends_whatever_its_topic_permits_by_then(
    tmp_path: Path, permission: int
) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Payments", "TRANSACTION")
        transaction_id = await half(await here.client(), topic)
        await here.permit(topic, permission)
        async with here.another() as other:
            client = await other.client()
            assert (await client.unary(ending(topic, transaction_id))).status.code == Code.OK


async def test_a_producer_is_asked_about_an_orphan_and_its_answer_counts(tmp_path: Path) -> None:
    """Its producer is gone; another one of the same topic comes later, at another proxy."""
    async with real_proxy(tmp_path, checks=OFTEN) as here:
        topic = await here.topic("Payments", "TRANSACTION")
        transaction_id = await half(await here.client(), topic)
        async with here.another() as other:
            producer = await other.client()
            stream = await producer.telemetry()
            await stream.settle(producer_settings(topic))
            told = await stream.receive()
            assert told is not None
            asked = told.recover_orphaned_transaction_command
            assert asked.message.body == b"half"
            assert asked.message.topic.name == topic
            system = asked.message.system_properties
            assert system.message_type == MessageType.TRANSACTION
            assert not system.HasField("receipt_handle")
            assert asked.transaction_id.split()[0] == transaction_id
            answer = await producer.unary(
                ending(
                    topic,
                    asked.transaction_id,
                    COMMIT,
                    TransactionSource.SOURCE_SERVER_CHECK,
                )
            )
            assert answer.status.code == Code.OK
            (got,) = await receive_some(producer, topic, 1)
            assert got.body == b"half"


async def test_what_is_no_transaction_is_refused(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Payments")
        client = await here.client()
        good = str(TransactionId("broker-a", 1, 2, "id"))
        for text in ("", " ", "rubbish", good[:-5], "MSAx", "é", good + "!"):
            answer = await client.unary(ending(topic, text))
            assert answer.status.code == Code.INVALID_TRANSACTION_ID, text
        for resolution in (0, 3):
            answer = await client.unary(ending(topic, good, resolution))  # type: ignore[arg-type]
            assert answer.status.code == Code.BAD_REQUEST
        unknown = str(TransactionId("broker-x", 1, 2, "id"))
        began = trio.current_time()
        answer = await client.unary(ending(topic, unknown), timeout_s=3)
        assert answer.status.code == Code.INVALID_TRANSACTION_ID
        assert trio.current_time() - began < 1


@given(
    broker=some.text("abc-_.09", min_size=1, max_size=40),
    half_offset=some.integers(0, 2**63 - 1),
    position=some.integers(0, 2**63 - 1),
    message_id=some.text(max_size=255),
)
def test_an_id_is_read_as_it_was_written(
    broker: str, half_offset: int, position: int, message_id: str
) -> None:
    made = TransactionId(broker, half_offset, position, message_id)
    assert read_transaction_id(str(made)) == made


def test_the_id_of_a_message_with_the_longest_id_and_broker_can_be_read() -> None:
    last = 2**63 - 1
    made = TransactionId("b" * 255, last, last, "\U0001f600" * 255)
    assert read_transaction_id(str(made)) == made


@given(text=some.text(max_size=100))
def test_any_text_is_an_id_or_is_refused(text: str) -> None:
    try:
        read_transaction_id(text)
    except Refused:
        return
    pytest.fail(f"{text!r} is no id")


def _question(topic: str, message_id: str = "id") -> Command:
    """What a broker asks."""
    record = MessageRecord(topic, b"half", encode_properties({"UNIQ_KEY": message_id}), 0)
    fields = {"tranStateTableOffset": "3", "commitLogOffset": "4", "msgId": message_id}
    return Command(
        RequestCode.CHECK_TRANSACTION_STATE, {**fields, "bname": "broker-a"}, encode_record(record)
    )


async def _producer(here: ScriptedProxy, topic: str) -> Telemetry:
    client = await here.client()
    stream = await client.telemetry()
    await stream.settle(producer_settings(topic))
    return stream


async def test_brokers_know_the_proxy_before_the_first_half_message(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Payments")
        here.brokers.types[topic] = "TRANSACTION"
        client = await here.client()

        def stored(command: Command) -> Command:
            assert here.brokers.heartbeats == 1
            return here.brokers.stored(command)

        here.brokers.answers[RequestCode.SEND_MESSAGE_V2] = stored
        for _ in range(3):
            await half(client, topic)
        assert list(here.brokers.checks) == [topic]


async def test_a_question_goes_to_one_producer_that_can_be_asked(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Payments")
        here.brokers.types[topic] = "TRANSACTION"
        first, second = await _producer(here, topic), await _producer(here, topic)
        ask = here.brokers.checks[topic]
        for number in range(4):
            ask(None, _question(topic, f"{number}"))
        found = []
        for stream in (first, second, first, second):
            told = await stream.receive()
            assert told is not None
            message_id = told.recover_orphaned_transaction_command.message.system_properties
            found.append(message_id.message_id)
        assert sorted(found) == ["0", "1", "2", "3"]
        await first.call.cancel()
        await trio.testing.wait_all_tasks_blocked()
        for number in range(2):
            ask(None, _question(topic, f"{number}"))
            assert await second.receive() is not None
        await second.call.cancel()
        await trio.testing.wait_all_tasks_blocked()
        ask(None, _question(topic))  # nobody: the broker asks again
        ask(None, Command(RequestCode.CHECK_TRANSACTION_STATE, {}, b"rubbish"))
        ask(None, Command(RequestCode.CHECK_TRANSACTION_STATE, {}, _question(topic).body))


async def test_questions_that_no_task_could_pass_on_take_no_place_of_later_ones(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Payments")
        here.brokers.types[topic] = "TRANSACTION"
        stream = await _producer(here, topic)
        ask = here.brokers.checks[topic]
        with monkeypatch.context() as busy:
            busy.setattr(beside, "MAX_TASKS", 0)
            for number in range(300):
                ask(None, _question(topic, f"{number}"))
        ask(None, _question(topic))
        with trio.fail_after(5):
            assert await stream.receive() is not None


async def test_a_proxy_without_a_producer_to_ask_is_not_asked_again(
    autojump_clock: MockClock,
) -> None:
    """A check without a producer counts: the broker gives up a transaction after 15."""
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Payments")
        here.brokers.types[topic] = "TRANSACTION"
        client = await here.client()
        stream = await client.telemetry()
        await stream.settle(producer_settings(topic))
        ask = here.brokers.checks[topic]
        await stream.call.cancel()
        await trio.testing.wait_all_tasks_blocked()
        for number in range(2):
            ask(None, _question(topic, f"{number}"))
        await trio.testing.wait_all_tasks_blocked()
        assert here.brokers.checks == {}
        again = await client.telemetry()  # without settings, as the client in Go does
        await again.call.until_headers()
        await trio.testing.wait_all_tasks_blocked()
        assert list(here.brokers.checks) == [topic]
        here.brokers.checks[topic](None, _question(topic))
        assert await again.receive() is not None
        await again.call.cancel()
        await trio.testing.wait_all_tasks_blocked()
        here.brokers.checks[topic](None, _question(topic))
        await trio.testing.wait_all_tasks_blocked()
        assert here.brokers.checks == {}
        await half(client, topic)
        assert list(here.brokers.checks) == [topic]


async def test_groups_without_a_producer_make_room_for_others(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        brokers = here.brokers
        producers = here.proxy._service._telemetry._on_settings.__self__  # type: ignore[attr-defined]
        for number in range(MAX_GROUPS):
            await producers.join(brokers.topic(f"T{number}"))
        for name in ("T0", "Used", "Both", "And"):
            brokers.topic(name)
            brokers.types[name] = "TRANSACTION"
        stream = await _producer(here, "T0")
        async with trio.open_nursery() as nursery:
            for name in ("Used", "Both", "And"):
                nursery.start_soon(producers.join, name)
        assert "T0" in brokers.checks
        assert len(brokers.checks) <= MAX_GROUPS
        await producers.join("And")
        assert "And" in brokers.checks
        await stream.call.cancel()


async def test_a_type_that_the_topic_does_not_take_joins_no_group(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Orders")
        client = await here.client()
        sent = message(topic, message_type=MessageType.TRANSACTION)
        answer = await client.unary(sending(sent))
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert here.brokers.checks == {}
