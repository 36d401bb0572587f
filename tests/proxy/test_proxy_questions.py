"""Operators' questions about consumers of a proxy: who is there, stacks, and one message again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from dledger_mq import Message, Producer
from dledger_mq.admin.answers import GroupConnections
from proxy.clients.questions import ANSWER_S, MAX_STACKS_BYTES, MOST_AT_ONCE, MOST_OF_CLIENT
from proxy.wire.messages_pb2 import (
    ClientType,
    Code,
    NotifyClientTerminationRequest,
    Status,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageResult,
)
from remoting.bodies.heartbeat import PROXIES_GROUP, Heartbeat, encode_heartbeat
from remoting.message.record import encode_record
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.signature import Credentials
from tests.broker.one_broker import Client as BrokerClient
from tests.proxy.grpc_client import GrpcClient, Telemetry
from tests.proxy.real_proxy import RealProxy, Served, real_proxy, send
from tests.proxy.real_proxy import message as sent_message
from tests.proxy.scripted_brokers import ScriptedProxy, record, scripted_proxy
from tests.proxy.settings_of_clients import consumer_settings
from tests.proxy.test_proxy_access import ADMIN, GROUP, TOPIC, guarded

RUNNING = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
MEMBERS = RequestCode.GET_CONSUMER_CONNECTION_LIST


class Asker:
    """A broker's connection, as a proxy sees it."""

    def __init__(self, here: ScriptedProxy) -> None:
        self._questions = here.brokers.questions
        self._replies, self._got = trio.open_memory_channel[Command](MOST_AT_ONCE + 8)
        self.client_id = "one"

    def send(self, reply: Command) -> None:
        self._replies.send_nowait(reply)

    def begin(self, code: int = RUNNING, body: bytes = b"", **fields: str) -> None:
        given = {"consumerGroup": "readers", "clientId": self.client_id, "jstackEnable": "true"}
        self._questions[code](self, Command(code, {**given, **fields}, body))

    async def reply(self) -> Command:
        return await self._got.receive()

    def has_none(self) -> bool:
        return not self._got.statistics().current_buffer_used


async def consumer(
    here: Served, client_id: str = "one", *topics: str
) -> tuple[GrpcClient, Telemetry]:
    """A consumer that has told its settings."""
    client = await here.client(client_id)
    stream = await client.telemetry(x_mq_language="GO", x_mq_client_version="5.1.4")
    await stream.settle(consumer_settings(*(topics or ("Orders",))))
    return client, stream


async def nonce_of(stream: Telemetry) -> str:
    """The nonce of the next question."""
    told = await stream.receive()
    assert told is not None
    if told.WhichOneof("command") == "verify_message_command":
        return told.verify_message_command.nonce
    return told.print_thread_stack_trace_command.nonce


def stacks(nonce: str, text: str) -> TelemetryCommand:
    trace = ThreadStackTrace(nonce=nonce, thread_stack_trace=text)
    return TelemetryCommand(status=Status(code=Code.OK), thread_stack_trace=trace)


def verified(nonce: str, code: Code, text: str = "") -> TelemetryCommand:
    result = VerifyMessageResult(nonce=nonce)
    return TelemetryCommand(status=Status(code=code, message=text), verify_message_result=result)


async def members(here: RealProxy, count: int) -> GroupConnections:
    """The members of the group, once there are so many: proxies tell brokers of themselves."""
    while True:
        found = await here.admin.group("readers").connections()
        if found is not None and len(found.consumers) == count:
            return found


async def test_operators_see_and_ask_consumers_of_all_proxies(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here, here.another() as other:
        topic = await here.topic("Orders")
        one, stream = await consumer(here, "one")
        two, _second = await consumer(other, "two")
        for client in (one, two):
            await send(client, sent_message(topic, b"x"))  # proxies know the brokers by now
        found = await members(here, 2)
        assert [member.client_id for member in found.consumers] == ["one", "two"]
        assert found.subscriptions == {"Orders": "*"}
        fields: dict[str, Any] = {"consumerGroup": "readers", "clientId": "one"}
        without = json.loads((await here.ask(RUNNING, jstackEnable="false", **fields)).body)
        assert without["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "jstack" not in without

        async def ask(told: list[Command], code: int, **more: Any) -> None:
            told.append(await here.ask(code, **fields, **more))

        async with trio.open_nursery() as nursery:
            told: list[Command] = []
            nursery.start_soon(lambda: ask(told, RUNNING, jstackEnable="true"))
            await stream.send(stacks(await nonce_of(stream), "main: sleeps"))
        assert json.loads(told[0].body)["jstack"] == "main: sleeps"
        async with Producer("p", client=here.group.client) as producer:
            stored = await producer.send(Message(topic, b"again"))
        async with trio.open_nursery() as nursery:
            told = []
            nursery.start_soon(lambda: ask(told, DIRECTLY, msgId=stored.offset_message_id))
            asked = await stream.receive()
            assert asked is not None
            assert asked.verify_message_command.message.body == b"again"
            await stream.send(verified(asked.verify_message_command.nonce, Code.OK))
        assert json.loads(told[0].body)["consumeResult"] == "CR_SUCCESS"
        await one.unary(NotifyClientTerminationRequest())
        await members(here, 1)


@asynccontextmanager
async def asked_proxy() -> AsyncIterator[tuple[ScriptedProxy, Asker, GrpcClient, Telemetry]]:
    async with scripted_proxy() as here:
        here.brokers.topic("Orders")
        client, stream = await consumer(here)
        yield here, Asker(here), client, stream


async def test_a_client_that_never_answers_is_waited_for_some_seconds(
    autojump_clock: MockClock,
) -> None:
    async with asked_proxy() as (_here, asker, _client, stream):
        began = trio.current_time()
        asker.begin()
        nonce = await nonce_of(stream)
        reply = await asker.reply()
        assert (reply.code, trio.current_time() - began) == (
            ResponseCode.CONSUME_MSG_TIMEOUT,
            ANSWER_S,
        )
        await stream.send(stacks(nonce, "late"))
        asker.begin(jstackEnable="false")
        assert "late" not in (await asker.reply()).body.decode()
        assert asker.has_none()


async def test_the_first_answer_of_the_client_that_was_asked_counts(
    autojump_clock: MockClock,
) -> None:
    async with asked_proxy() as (here, asker, _client, stream):
        _other, imposter = await consumer(here, "two")
        asker.begin()
        nonce = await nonce_of(stream)
        await imposter.send(stacks(nonce, "of another client"))
        await stream.send(stacks(nonce[:-1], "of another question"))
        await trio.sleep(1)
        assert asker.has_none()
        for text in ("mine", "mine again"):
            await stream.send(stacks(nonce, text))
        assert json.loads((await asker.reply()).body)["jstack"] == "mine"
        await trio.sleep(1)
        assert asker.has_none()
        assert await stream_lives(stream)


async def stream_lives(stream: Telemetry) -> bool:
    settings = await stream.settle(consumer_settings("Orders"))
    return settings.client_type == ClientType.PUSH_CONSUMER


async def test_an_older_stream_of_the_same_client_cannot_answer(autojump_clock: MockClock) -> None:
    async with asked_proxy() as (here, asker, _client, stream):
        _again, newer = await consumer(here)
        asker.begin()
        nonce = await nonce_of(newer)
        await stream.send(stacks(nonce, "old"))
        await trio.sleep(1)
        await newer.send(stacks(nonce, "new"))
        assert json.loads((await asker.reply()).body)["jstack"] == "new"


async def test_large_stacks_are_cut(autojump_clock: MockClock) -> None:
    async with asked_proxy() as (_here, asker, _client, stream):
        asker.begin()
        await stream.send(stacks(await nonce_of(stream), "\u00e9" * (2 * 1024 * 1024)))
        told = json.loads((await asker.reply()).body)["jstack"]
        assert MAX_STACKS_BYTES <= len(told.encode()) < MAX_STACKS_BYTES + 100
        assert told.endswith("... cut: the client has sent 4194304 bytes\n")


async def test_questions_in_flight_are_bounded(autojump_clock: MockClock) -> None:
    async with asked_proxy() as (here, asker, _client, stream):
        for _ in range(MOST_OF_CLIENT + 1):
            asker.begin()
        assert (await asker.reply()).code == ResponseCode.SYSTEM_BUSY
        for _ in range(MOST_OF_CLIENT):
            await nonce_of(stream)
        count = MOST_OF_CLIENT
        for number in range(2, MOST_AT_ONCE):
            if count == MOST_AT_ONCE:
                break
            _client, another = await consumer(here, f"client-{number}")
            asker.client_id = f"client-{number}"
            for _ in range(MOST_OF_CLIENT):
                asker.begin()
                await nonce_of(another)
                count += 1
        _client, another = await consumer(here, "last")
        asker.client_id = "last"
        asker.begin()
        assert (await asker.reply()).code == ResponseCode.SYSTEM_BUSY
        for _ in range(count):
            assert (await asker.reply()).code == ResponseCode.CONSUME_MSG_TIMEOUT
        asker.begin()
        await another.send(stacks(await nonce_of(another), "free again"))
        assert (await asker.reply()).code == ResponseCode.SUCCESS


async def test_a_client_that_leaves_or_has_no_stream_is_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with asked_proxy() as (here, asker, client, stream):
        asker.begin()
        await nonce_of(stream)
        began = trio.current_time()
        await client.unary(NotifyClientTerminationRequest())
        assert "left" in ((await asker.reply()).remark or "")
        asker.begin()
        assert (await asker.reply()).code == ResponseCode.CONSUMER_NOT_ONLINE
        other, its_stream = await consumer(here, "two")
        asker.client_id = "two"
        asker.begin(consumerGroup="others")
        assert (await asker.reply()).code == ResponseCode.CONSUMER_NOT_ONLINE
        await its_stream.call.end()
        assert await its_stream.receive() is None
        asker.begin()
        assert "no stream" in ((await asker.reply()).remark or "")
        assert trio.current_time() - began < 1
        assert not other.is_over


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (Code.NOT_IMPLEMENTED, None),
        (Code.CODE_UNSPECIFIED, None),
    ],
)
async def test_what_a_client_did_with_a_message_has_remotings_words(
    code: Code, result: str | None, autojump_clock: MockClock
) -> None:
    async with asked_proxy() as (_here, asker, _client, stream):
        asker.begin(DIRECTLY, encode_record(record("Orders", 7, b"again")))
        await stream.send(verified(await nonce_of(stream), code, "its words"))
        reply = await asker.reply()
        if result is None:
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert Code.Name(code) in (reply.remark or "")
        else:
            told: dict[str, Any] = json.loads(reply.body)
            assert (told["consumeResult"], told["remark"]) == (result, "its words")
        asker.begin(DIRECTLY, b"no message")
        assert (await asker.reply()).code == ResponseCode.SYSTEM_ERROR


async def test_members_of_other_groups_are_not_told_of(autojump_clock: MockClock) -> None:
    async with asked_proxy() as (here, asker, _client, stream):
        asker.begin(MEMBERS, consumerGroup="others")
        assert (await asker.reply()).code == ResponseCode.CONSUMER_NOT_ONLINE
        asker.begin(MEMBERS)
        (told,) = json.loads((await asker.reply()).body)["connectionSet"]
        assert (told["clientId"], told["language"]) == ("one", "GO")
        await stream.settle(consumer_settings("Orders", group="others"))
        asker.begin(MEMBERS)
        assert (await asker.reply()).code == ResponseCode.CONSUMER_NOT_ONLINE
        assert here.brokers.asked is not None


async def test_with_access_control_only_super_users_are_proxies(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here, trio.open_nursery() as nursery:
        await here.user("alice", **{f"Topic__{TOPIC}": "Pub,Sub", f"Group__{GROUP}": "Sub"})
        imposter = BrokerClient(nursery, here.address, Credentials("alice", "alice-secret"))
        imposter.answers = True
        operator = BrokerClient(nursery, here.address, ADMIN)
        beat = encode_heartbeat(Heartbeat("imposter", [PROXIES_GROUP], []))
        assert (await imposter.ask(RequestCode.HEART_BEAT, beat)).code == ResponseCode.SUCCESS
        stored = await operator.send(TOPIC, b"secret")
        fields: dict[str, Any] = {"consumerGroup": GROUP, "clientId": "anyone"}
        fields["msgId"] = stored.fields["msgId"]
        for code in (RUNNING, DIRECTLY):
            assert (await operator.ask(code, **fields)).code == ResponseCode.SYSTEM_ERROR
        refused = await operator.ask(MEMBERS, consumerGroup=GROUP)
        assert refused.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert imposter.notices == []
        imposter.close()
        operator.close()
