"""Sending by a proxy: what is stored, which queue it is in, and what is refused."""

from __future__ import annotations

import gzip
import unicodedata
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as some
from trio.testing import MockClock

from dledger_mq import Message as RemotingMessage
from dledger_mq import Producer
from proxy import service
from proxy.messages.delivered_message import delivered
from proxy.messages.sent_message import MAX_BODY_BYTES, RESERVED, read_sent
from proxy.sending.queue_choice import QueueChoice, consistent_hash
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import (
    Code,
    Encoding,
    Message,
    MessageType,
    RecallMessageRequest,
    SendMessageResponse,
    TelemetryCommand,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.message.java_hash import java_hash
from remoting.message.properties import properties_bytes
from remoting.message.record import (
    COMPRESSED_FLAG,
    MessageRecord,
    body_of,
    decode_record,
    encode_record,
)
from remoting.net.errors import ConnectionClosed
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.examples import examples
from tests.proxy.grpc_client import GrpcClient
from tests.proxy.real_proxy import (
    acknowledging,
    message,
    real_proxy,
    receive_some,
    receiving,
    send,
    sending,
)
from tests.proxy.scripted_brokers import scripted_proxy

NOW_MS = 1_700_000_000_000
HOST = "10.1.2.3"
SEND = RequestCode.SEND_MESSAGE_V2


def through(sent: Message) -> Message:
    """What a consumer gets of a message that a producer has sent, by way of a broker's record."""
    read = read_sent(sent.topic.name, sent, HOST, NOW_MS)
    record = MessageRecord(
        read.topic, read.body, properties_bytes(read.properties), 3, system_flag=read.system_flag
    )
    record.born_timestamp, record.queue_offset = read.born_ms, 11
    stored, _end = decode_record(encode_record(record))
    return delivered(stored)


def _is_plain(text: str) -> bool:
    return bool(text.strip()) and not any(unicodedata.category(one) == "Cc" for one in text)


_texts = some.text(
    some.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20
).filter(_is_plain)
_words = _texts.filter(lambda text: " " not in text)
_tags = _texts.filter(lambda text: "|" not in text)
_groups = _texts.filter(lambda text: len(text.encode()) <= 63)
_names = _texts.filter(lambda text: text not in RESERVED)


@settings(max_examples=examples(200))
@given(
    body=some.binary(min_size=1, max_size=200),
    tag=some.none() | _tags,
    keys=some.lists(_words, max_size=4),
    user=some.dictionaries(_names, some.text(some.characters(exclude_categories=("Cs", "Cc")))),
    group=some.none() | _groups,
    trace=some.none() | _texts,
    born_ms=some.integers(1, 4_000_000_000_000),
    attempt=some.none() | some.integers(1, 100),
)
def test_what_is_sent_comes_back_equal(
    body: bytes,
    tag: str | None,
    keys: list[str],
    user: dict[str, str],
    group: str | None,
    trace: str | None,
    born_ms: int,
    attempt: int | None,
) -> None:
    more: dict[str, Any] = {"keys": keys, "user": user, "born_timestamp": born_ms}
    optional = {"tag": tag, "message_group": group, "trace_context": trace}
    more |= {name: value for name, value in optional.items() if value is not None}
    sent = message("Orders", body, **more)
    got = through(sent)
    expected, system = sent.system_properties, got.system_properties
    assert got.body == body
    assert got.topic.name == "Orders"
    shown = dict(got.user_properties)
    assert shown.pop("__SHARDINGKEY", None) == group
    assert shown.pop("TRACE_CONTEXT", None) == trace
    assert shown == user
    assert list(system.keys) == keys
    assert system.HasField("tag") == (tag is not None)
    assert (system.tag, system.message_id) == (tag or "", expected.message_id)
    assert (system.message_group, system.trace_context) == (group or "", trace or "")
    assert system.born_timestamp == expected.born_timestamp
    assert system.born_host == "made-here"
    assert system.queue_offset == 11
    kind = MessageType.NORMAL if group is None else MessageType.FIFO
    assert system.message_type == kind
    assert system.body_encoding == Encoding.IDENTITY


def _sent(**more: Any) -> Message:
    return message("Orders", **more)


def _with_user(pairs: dict[str, str]) -> Message:
    return _sent(user=pairs)


def _changed(change: Callable[[Message], Any], **more: Any) -> Message:
    made = _sent(**more)
    change(made)
    return made


def _no_body(made: Message) -> None:
    made.body = b""


def _zipped(body: bytes) -> Message:
    return _sent(body=gzip.compress(body), body_encoding=Encoding.GZIP)


def _group(text: str) -> Message:
    return _sent(message_group=text)


_DAY_MS = 86_400_000

# What may be sent, and what is one beyond it, by the code of the refusal.
_LIMITS: tuple[tuple[int, Message, Message], ...] = (
    (Code.MESSAGE_BODY_EMPTY, _sent(body=b"1"), _changed(_no_body)),
    (
        Code.MESSAGE_BODY_TOO_LARGE,
        _sent(body=bytes(MAX_BODY_BYTES)),
        _sent(body=bytes(MAX_BODY_BYTES + 1)),
    ),
    (
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        _with_user({f"k{number}": "" for number in range(128)}),
        _with_user({f"k{number}": "" for number in range(129)}),
    ),
    (
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        _sent(tag="t", keys=["k"], user={"name": "x" * 16378}),
        _sent(tag="t", keys=["k"], user={"name": "x" * 16379}),
    ),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, _with_user({"TAG": "x"}), _with_user({"TAGS": "x"})),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, _with_user({"n": ""}), _with_user({" ": "x"})),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, _with_user({"é": "x"}), _with_user({"a\x01": "x"})),
    (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, _with_user({"a": "\u2028"}), _with_user({"a": "\x02"})),
    (Code.ILLEGAL_MESSAGE_TAG, _sent(tag="a&b"), _sent(tag="a|b")),
    (Code.ILLEGAL_MESSAGE_TAG, _sent(tag=" a"), _sent(tag=" ")),
    (Code.ILLEGAL_MESSAGE_TAG, _sent(tag="a"), _sent(tag="a\n")),
    (Code.ILLEGAL_MESSAGE_KEY, _sent(keys=["a"]), _sent(keys=["a", ""])),
    (Code.ILLEGAL_MESSAGE_KEY, _sent(keys=["a b"]), _sent(keys=["a\tb"])),
    (Code.ILLEGAL_MESSAGE_ID, _sent(message_id="1"), _sent(message_id=" ")),
    (Code.ILLEGAL_MESSAGE_ID, _sent(message_id="1" * 255), _sent(message_id="1" * 256)),
    (Code.ILLEGAL_MESSAGE_GROUP, _group("g" * 63), _group("g" * 64)),
    (Code.ILLEGAL_MESSAGE_GROUP, _group("é" * 31), _group("é" * 32)),
    (Code.ILLEGAL_MESSAGE_GROUP, _group("g"), _group(" ")),
    (Code.ILLEGAL_MESSAGE_GROUP, _group("a b"), _group("a\x01")),
    (
        Code.ILLEGAL_DELIVERY_TIME,
        _sent(delivery_timestamp=NOW_MS + _DAY_MS),
        _sent(delivery_timestamp=NOW_MS + _DAY_MS + 1),
    ),
    (Code.BAD_REQUEST, _zipped(b"body"), _sent(body_encoding=3)),
    (Code.MESSAGE_CORRUPTED, _zipped(b"body"), _sent(body_encoding=Encoding.GZIP)),
    (
        Code.MESSAGE_BODY_TOO_LARGE,
        _zipped(bytes(MAX_BODY_BYTES)),
        _zipped(bytes(MAX_BODY_BYTES + 1)),
    ),
    (Code.MESSAGE_BODY_EMPTY, _zipped(b"1"), _zipped(b"")),
    (
        Code.BAD_REQUEST,
        _sent(message_type=4, orphaned_transaction_recovery_duration=3_600_000),
        _sent(message_type=4, orphaned_transaction_recovery_duration=3_601_000),
    ),
    (Code.BAD_REQUEST, _sent(priority=0), _sent(priority=-1)),
    (
        Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
        _sent(trace_context="é" * 8192),
        _sent(trace_context="é" * 8193),
    ),
    (
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
        _sent(trace_context="x" * 16384, user={"name": "x" * 15000}),
        _sent(trace_context="x" * 16384, user={"name": "x" * 16380}),
    ),
    (
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        _sent(priority=1, message_group="g"),
        _sent(priority=1, lite_topic="a"),
    ),
    (Code.ILLEGAL_LITE_TOPIC, _sent(lite_topic="a" * 64), _sent(lite_topic="a" * 65)),
    (Code.ILLEGAL_LITE_TOPIC, _sent(lite_topic="a-_Z9"), _sent(lite_topic="a b")),
)


def test_each_limit_of_a_message_has_its_code() -> None:
    for code, within, beyond in _LIMITS:
        read_sent("Orders", within, HOST, NOW_MS)
        with pytest.raises(Refused) as refused:
            read_sent("Orders", beyond, HOST, NOW_MS)
        assert refused.value.code == code, refused.value.text
        assert len(refused.value.text) < 400


def test_every_name_that_brokers_use_is_reserved() -> None:
    for name in RESERVED:
        with pytest.raises(Refused) as refused:
            read_sent("Orders", _with_user({name: "x"}), HOST, NOW_MS)
        assert refused.value.code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    assert {"__SHARDINGKEY", "TRACE_CONTEXT"}.isdisjoint(RESERVED)


def test_the_type_is_that_of_the_first_property_and_not_of_the_name() -> None:
    kinds: dict[MessageType, dict[str, Any]] = {
        MessageType.TRANSACTION: {"message_type": MessageType.TRANSACTION},
        MessageType.DELAY: {"delivery_timestamp": NOW_MS},
        MessageType.FIFO: {"message_group": "g"},
        MessageType.PRIORITY: {"priority": 1},
        MessageType.NORMAL: {},
    }
    more: dict[str, Any] = {}
    for kind, own in reversed(kinds.items()):
        more = {"message_type": MessageType.NORMAL, **more, **own}
        read = read_sent("Orders", _sent(**more), HOST, NOW_MS)
        assert read.kind == kind
    assert read_sent("Orders", _sent(message_type=MessageType.FIFO), HOST, NOW_MS).kind == 1
    assert read_sent("Orders", _sent(lite_topic="l"), HOST, NOW_MS).kind == MessageType.LITE


@pytest.mark.parametrize(
    "more",
    [
        {"message_type": MessageType.TRANSACTION},
        {"delivery_timestamp": NOW_MS},
        {"message_group": "g"},
        {"priority": 1},
    ],
)
def test_a_message_of_a_lite_topic_is_of_no_other_type(more: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        read_sent("Orders", _sent(lite_topic="l", **more), HOST, NOW_MS)
    assert refused.value.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_a_body_that_its_producer_has_compressed_can_be_read(
    compress: Callable[[bytes], bytes],
) -> None:
    """Clients of an earlier version compress bodies of 4 KiB and more."""
    body = b"words " * 1000
    sent = _sent(body=compress(body), body_encoding=Encoding.GZIP)
    got = through(sent)
    assert got.body == body
    assert got.system_properties.body_encoding == Encoding.IDENTITY
    stored = MessageRecord("Orders", compress(body), b"", 3, system_flag=COMPRESSED_FLAG)
    assert body_of(stored) == body, "as earlier versions stored it"


def test_millions_of_empty_keys_are_refused_by_their_number() -> None:
    with pytest.raises(Refused) as refused:
        read_sent("Orders", _sent(keys=[""] * 16_385), HOST, NOW_MS)
    assert refused.value.code == Code.MESSAGE_PROPERTIES_TOO_LARGE


def test_message_groups_have_the_queues_that_the_proxy_in_java_gives_them() -> None:
    expected = {"g1": (0, 6, 9), "order-42": (3, 3, 10), "room-1": (3, 3, 3)}
    hashes = {"g1": 3242, "order-42": 1234255197, "room-1": -925320257}
    for group, numbers in expected.items():
        assert java_hash(group) == hashes[group]
        for count, number in zip((4, 8, 16), numbers, strict=True):
            queues = [MessageQueue("Orders", "broker-a", each) for each in range(count)]
            assert QueueChoice().choose(queues, group, None) == queues[number]


@given(value=some.integers(-(2**31), 2**31 - 1), count=some.integers(1, 2000))
def test_one_more_queue_takes_groups_from_the_others_and_moves_no_other(
    value: int, count: int
) -> None:
    before, after = consistent_hash(value, count), consistent_hash(value, count + 1)
    assert 0 <= before < count
    assert after in (before, count)


def test_a_higher_priority_has_a_higher_queue_and_no_group_goes_in_turn() -> None:
    queues = [MessageQueue("T", name, each) for name in ("a", "b") for each in range(3)]
    choice = QueueChoice()
    for priority, number in ((0, 0), (1, 1), (2, 2), (3, 2), (2**31 - 1, 2)):
        assert choice.choose(queues, "", priority).queue_id == number
    assert {choice.choose(queues, "", 1).broker_name for _ in range(2)} == {"a", "b"}
    assert {choice.choose(queues, "", None) for _ in range(6)} == set(queues)


async def test_each_type_goes_to_the_topics_that_take_it(tmp_path: Path) -> None:
    soon: dict[str, Callable[[], dict[str, Any]]] = {
        "NORMAL": dict,
        "FIFO": lambda: {"message_group": "g"},
        "DELAY": lambda: {"delivery_timestamp": 1},
        "TRANSACTION": lambda: {"message_type": MessageType.TRANSACTION},
    }
    async with real_proxy(tmp_path) as here:
        client = await here.client()
        for kind in (*soon, "MIXED", None):
            topic = await here.topic(f"T-{kind}", kind)
            for sent, more in soon.items():
                answer = await client.unary(sending(message(topic, **more())))
                is_taken = kind in (sent, "MIXED") or (kind is None and sent == "NORMAL")
                code = Code.OK if is_taken else Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
                assert answer.status.code == code, (kind, sent, answer)
        unknown = await client.unary(sending(message("Nowhere")))
        assert unknown.status.code == Code.TOPIC_NOT_FOUND


async def test_messages_cross_between_the_two_protocols(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Orders")
        client = await here.client()
        sent = message(topic, b"by gRPC", tag="t", keys=["a", "b"], user={"colour": "blue"})
        answer = await send(client, sent)
        assert answer.entries[0].message_id == sent.system_properties.message_id
        (got,) = await here.admin.find(topic, "a")
        assert (got.body, got.tags, got.keys) == (b"by gRPC", "t", "a b")
        assert got.properties["colour"] == "blue"
        async with Producer("writers", client=here.group.client) as producer:
            await producer.send(
                RemotingMessage(topic, b"by remoting", tags="u", keys="c", properties={"x": "y"})
            )
        first, second = await receive_some(client, topic, 2)
        assert first.body == b"by gRPC"
        assert first.system_properties.delivery_attempt == 1
        system = second.system_properties
        assert (second.body, system.tag, list(system.keys)) == (b"by remoting", "u", ["c"])
        assert second.user_properties["x"] == "y"
        assert system.message_id
        assert system.born_host == "127.0.0.1"


async def test_messages_of_one_call_have_results_of_their_own(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Orders", queues=2)
        client = await here.client()
        sent = [message(topic, b"%d" % number) for number in range(20)]
        answer = await send(client, *sent)
        assert [entry.message_id for entry in answer.entries] == [
            one.system_properties.message_id for one in sent
        ]
        got = await receive_some(client, topic, 20)
        assert sorted(one.body for one in got) == sorted(one.body for one in sent)


async def test_a_part_of_a_call_that_fails_is_told_by_its_entry(
    autojump_clock: MockClock,
) -> None:
    def refuse_second(command: Command) -> Command:
        if command.body == b"bad":
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="a full disk")
        return brokers.stored(command)

    async with scripted_proxy() as here:
        brokers = here.brokers
        topic = brokers.topic("Orders")
        brokers.answers[SEND] = refuse_second
        client = await here.client()
        answer: SendMessageResponse = await client.unary(
            sending(*(message(topic, body) for body in (b"good", b"bad", b"good")))
        )
        assert answer.status.code == Code.MULTIPLE_RESULTS
        expected = [Code.OK, Code.INTERNAL_SERVER_ERROR, Code.OK]
        assert [entry.status.code for entry in answer.entries] == expected
        assert answer.entries[1].status.message == "a full disk"
        for wrong in (
            sending(),
            sending(message(topic), message("Others")),
            sending(*[message(topic)] * 1025),
        ):
            refused = await client.unary(wrong)
            assert refused.status.code == Code.MESSAGE_CORRUPTED


async def test_messages_of_one_group_in_one_call_keep_their_order(
    autojump_clock: MockClock,
) -> None:
    """After one that fails, the later ones of its group are not stored."""
    async with scripted_proxy() as here:
        brokers = here.brokers
        topic = brokers.topic("Orders")
        brokers.types[topic] = "FIFO"
        client = await here.client()
        sent = [message(topic, b"%d" % n, message_group=f"g{n % 2}") for n in range(40)]
        await send(client, *sent)
        stored = [int(command.body) for command in brokers.of(SEND)]
        for parity in range(2):
            assert [n for n in stored if n % 2 == parity] == list(range(parity, 40, 2))

        def refuse_second(command: Command) -> Command:
            if command.body == b"2":
                return command.reply(ResponseCode.SYSTEM_ERROR, remark="a full disk")
            return brokers.stored(command)

        brokers.answers[SEND] = refuse_second
        answer = await client.unary(sending(*sent[:6]))
        ok, failed = Code.OK, Code.INTERNAL_SERVER_ERROR
        codes = [entry.status.code for entry in answer.entries]
        assert codes == [ok, ok, failed, ok, failed, ok]
        assert [command.body for command in brokers.of(SEND)].count(b"4") == 1


async def test_a_delayed_message_can_be_recalled_until_it_is_given(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Later", "DELAY")
        client = await here.client()
        later_ms = message(topic).system_properties.born_timestamp.ToMilliseconds() + 3_600_000
        sent = message(topic, delivery_timestamp=later_ms)
        (entry,) = (await send(client, sent)).entries
        assert entry.recall_handle
        recall = RecallMessageRequest(recall_handle=entry.recall_handle)
        recall.topic.name = topic
        answer = await client.unary(recall)
        assert answer.status.code == Code.OK, answer
        assert answer.message_id == sent.system_properties.message_id
        soon = message(topic, b"at once", delivery_timestamp=1)
        await send(client, soon)
        (got,) = await receive_some(client, topic, 1)
        assert got.body == b"at once"
        assert got.system_properties.message_type == MessageType.DELAY
        for handle in ("", "rubbish", "djEgYSBi", "\u00e9"):
            recall.recall_handle = handle
            assert (await client.unary(recall)).status.code == Code.BAD_REQUEST
        recall.topic.name = await here.topic("Orders")
        refused = await client.unary(recall)
        assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def _outcome(
    client: GrpcClient, topic: str, timeout_s: float = 3.0, body: bytes = b"body"
) -> Code:
    sent = sending(message(topic, body))
    answer: SendMessageResponse = await client.unary(sent, timeout_s=timeout_s)
    assert answer.status.message
    return answer.status.code


async def test_a_send_follows_an_election(autojump_clock: MockClock) -> None:
    """The old leader is silent, then there is none, then the new one is not ready."""
    async with scripted_proxy() as here:
        brokers = here.brokers
        topic = brokers.topic("Orders")
        client = await here.client()
        assert await _outcome(client, topic) == Code.OK
        route = brokers.routes_of[topic]

        async def elect(phase_s: float) -> None:
            brokers.answers[SEND] = lambda _command: None
            await trio.sleep(phase_s)
            brokers.without_leader(topic)
            await trio.sleep(phase_s)
            brokers.routes_of[topic] = route
            brokers.answers[SEND] = lambda command: command.reply(
                ResponseCode.SLAVE_NOT_AVAILABLE, remark="not yet"
            )
            await trio.sleep(phase_s)
            brokers.answers[SEND] = brokers.stored

        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect, 0.8)
            await trio.sleep(0.1)
            assert await _outcome(client, topic, 10) == Code.OK
        brokers.without_leader(topic)
        assert await _outcome(client, topic, 10) == Code.HA_NOT_AVAILABLE


def test_no_character_of_a_text_beyond_its_limit_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes a tenth of a microsecond, if none of them can be printed."""
    look = unicodedata.category
    looked_at: list[str] = []

    def counted(one: str) -> str:
        looked_at.append(one)
        return look(one)

    monkeypatch.setattr(unicodedata, "category", counted)
    text = "\u00ad" * 100_000
    for user in ({"name": text}, {text: "value"}):
        with pytest.raises(Refused) as refused:
            read_sent("Orders", message("Orders", user=user), HOST, NOW_MS)
        assert refused.value.code == Code.MESSAGE_PROPERTIES_TOO_LARGE
    read_sent("Orders", message("Orders", born_host=text), HOST, NOW_MS)
    assert len(looked_at) <= 1000


def _replies(code: int) -> Callable[[Command], Command]:
    return lambda command: command.reply(code, remark="x" * 5000)


async def test_the_answers_of_brokers_have_the_codes_that_clients_know(
    autojump_clock: MockClock,
) -> None:
    expected = {
        ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
        ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
        ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
        ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
        ResponseCode.NO_PERMISSION: Code.UNAUTHORIZED,
        ResponseCode.SYSTEM_ERROR: Code.INTERNAL_SERVER_ERROR,
        99999: Code.INTERNAL_SERVER_ERROR,
    }
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Orders")
        client = await here.client()
        for code, status in expected.items():
            here.brokers.answers[SEND] = _replies(code)
            answer = await client.unary(sending(message(topic)))
            assert answer.status.code == status, code
            assert 0 < len(answer.status.message) <= 1000
        here.brokers.answers[SEND] = lambda _command: ConnectionClosed("broker:1", "it ended", True)
        assert await _outcome(client, topic, 20) == Code.PROXY_TIMEOUT
        here.brokers.answers[SEND] = lambda command: command.reply(0, {"queueOffset": "rubbish"})
        assert await _outcome(client, topic) == Code.INTERNAL_SERVER_ERROR


async def _codes_at_once(client: GrpcClient, topic: str, body: bytes, count: int) -> list[int]:
    """Send so many messages at once."""
    codes: list[int] = []

    async def one() -> None:
        call = await client.call("SendMessage")
        await call.send(sending(message(topic, body)))  # the answer may come first
        answer = await call.receive()
        assert answer is not None
        codes.append(SendMessageResponse.FromString(answer).status.code)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)
    return codes


async def test_messages_that_are_being_answered_are_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may have many on their way, each compressed to a thousandth."""
    monkeypatch.setattr(service, "MAX_ANSWERED_BYTES", 250_000)
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Orders")
        here.brokers.slow_s[SEND] = 1.0
        client = await here.client()
        codes = await _codes_at_once(client, topic, bytes(100_000), 4)
        assert sorted(codes) == [Code.OK] * 2 + [Code.TOO_MANY_REQUESTS] * 2
        assert await _outcome(client, topic, 10, bytes(200_000)) == Code.OK
        stream = await client.telemetry()
        large = TelemetryCommand()
        large.verify_message_result.nonce = "x" * 240_000
        for _ in range(3):
            await stream.send(large)
        assert await _outcome(client, topic) == Code.OK, "a command that was read is kept no more"


async def test_messages_of_one_host_that_are_being_answered_leave_room_for_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_ANSWERED_BYTES", 1_000_000)
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Orders")
        here.brokers.slow_s[SEND] = 1.0
        greedy = await here.client(peer="10.0.0.1:1")
        other = await here.client(peer="10.0.0.2:1")
        taken: list[list[int]] = []

        async def take_all() -> None:
            taken.append(await _codes_at_once(greedy, topic, bytes(1000), 1000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_all)
            await trio.sleep(0.5)
            assert await _outcome(other, topic, 10, bytes(100_000)) == Code.OK
        (codes,) = taken
        assert 600 < codes.count(Code.OK) < 800
        assert codes.count(Code.TOO_MANY_REQUESTS) == 1000 - codes.count(Code.OK)


async def test_a_topic_that_takes_no_messages_refuses_a_send_at_once(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Orders")
        await here.permit(topic, 4)
        async with here.another() as other:
            client = await other.client()
            began = trio.current_time()
            refused = await client.unary(sending(message(topic)), timeout_s=10)
            assert refused.status.code == Code.FORBIDDEN
            assert trio.current_time() - began < 2


async def test_a_send_ends_before_its_deadline(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        topic = here.brokers.topic("Orders")
        client = await here.client()
        here.brokers.answers[SEND] = lambda _command: None
        for timeout_s in (0.2, 1.0, 1.9, 3.0):
            began = trio.current_time()
            assert await _outcome(client, topic, timeout_s) == Code.PROXY_TIMEOUT
            assert trio.current_time() - began <= timeout_s
        began = trio.current_time()
        answer = await client.unary(sending(message(topic)))
        assert answer.status.code == Code.PROXY_TIMEOUT
        assert trio.current_time() - began < 8


async def test_bodies_are_exact_at_every_size(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        topic = await here.topic("Orders")
        client = await here.client()
        for size in (1, 16_384, 65_535, 1 << 20, MAX_BODY_BYTES):
            body = bytes(number % 251 for number in range(1024)) * (size // 1024 + 1)
            await send(client, message(topic, body[:size]))
            (got,) = await receive_some(client, topic, 1)
            assert got.body == body[:size]
            await client.unary(acknowledging(topic, got))
        beyond = await client.unary(sending(message(topic, bytes(MAX_BODY_BYTES + 1))))
        assert beyond.status.code == Code.MESSAGE_BODY_TOO_LARGE
        nothing = await client.receive(receiving(topic))
        assert nothing.code == Code.MESSAGE_NOT_FOUND
