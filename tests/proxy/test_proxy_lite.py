"""Lite topics by a proxy: subscriptions, order, and what an election changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from proxy.wire import messages_pb2 as messages
from proxy.wire.messages_pb2 import Code, LiteSubscriptionAction
from remoting.wire.codes import RequestCode, ResponseCode
from tests.proxy.real_proxy import RealProxy, acknowledging, message, real_proxy, receiving, sending
from tests.proxy.scripted_brokers import ScriptedBrokers, ScriptedProxy, record, scripted_proxy

ADD = LiteSubscriptionAction.PARTIAL_ADD
SET = LiteSubscriptionAction.COMPLETE_ADD
SUBSCRIBE = RequestCode.LITE_SUBSCRIPTION_CTL
POP = RequestCode.POP_LITE_MESSAGE


def subscribing(
    *names: str,
    action: LiteSubscriptionAction = ADD,
    group: str = "agents",
    topic: str = "sessions",
) -> messages.SyncLiteSubscriptionRequest:
    made = messages.SyncLiteSubscriptionRequest(action=action, lite_topic_set=names)
    made.group.name, made.topic.name = group, topic
    return made


async def with_lite_topics(here: RealProxy, **attributes: str) -> None:
    await here.topic("sessions", "LITE", queues=2)
    bound = {"+lite.bind.topic": "sessions", **{f"+{k}": v for k, v in attributes.items()}}
    await here.consumer_group("agents", attributes=bound)


async def test_a_client_gets_what_it_subscribes_to_in_order_and_at_any_proxy(
    tmp_path: Path,
) -> None:
    async with real_proxy(tmp_path) as here, here.another() as other:
        await with_lite_topics(here)
        client = await here.client()
        assert (await client.unary(subscribing("a"))).status.code == Code.OK
        for number in range(3):
            for name in ("a", "b"):
                body = f"{name}{number}".encode()
                sent = await client.unary(sending(message("sessions", body, lite_topic=name)))
                assert sent.status.code == Code.OK
        got: list[bytes] = []
        while len(got) < 3:
            received = await client.receive(receiving("sessions", "agents", wait_s=2.0))
            assert received.code == Code.OK
            got += received.bodies
            for one in received.messages:
                assert one.system_properties.lite_topic == "a"
            nothing = await client.receive(receiving("sessions", "agents"))
            assert nothing.code == Code.MESSAGE_NOT_FOUND  # one after another
            elsewhere = await other.client()
            done = await elsewhere.unary(
                acknowledging("sessions", *received.messages, group="agents")
            )
            assert done.status.code == Code.OK
        assert got == [b"a0", b"a1", b"a2"]


async def test_a_client_is_told_of_a_lite_topic_that_another_takes_over(tmp_path: Path) -> None:
    async with real_proxy(tmp_path) as here:
        await with_lite_topics(here, **{"lite.sub.model": "Exclusive"})
        first, second = await here.client(), await here.client()
        stream = await first.telemetry()
        settings = messages.Settings(client_type=messages.ClientType.LITE_PUSH_CONSUMER)
        settings.subscription.group.name = "agents"
        settings.subscription.subscriptions.add().topic.name = "sessions"
        await stream.call.send(messages.TelemetryCommand(settings=settings))
        assert await stream.call.receive() is not None
        assert (await first.unary(subscribing("a", "b"))).status.code == Code.OK
        assert (await second.unary(subscribing("b"))).status.code == Code.OK
        told = await stream.call.receive()
        assert told is not None
        lost = messages.TelemetryCommand.FromString(told).notify_unsubscribe_lite_command
        assert lost.lite_topic == "b"


@asynccontextmanager
async def lite_proxy() -> AsyncIterator[ScriptedProxy]:
    """A proxy of brokers that have lite topics, and no messages."""
    async with scripted_proxy() as here:
        here.brokers.topic("sessions")
        here.brokers.types["sessions"] = "LITE"
        here.brokers.answers[POP] = lambda command: command.reply(ResponseCode.POLLING_TIMEOUT)
        yield here


def last_told(brokers: ScriptedBrokers) -> Any:
    """What a broker was told last of what a client wants."""
    (told,) = json.loads(brokers.of(SUBSCRIBE)[-1].body)["subscriptionSet"]
    return told


async def test_messages_given_back_count_if_the_client_has_others_of_their_lite_topic(
    autojump_clock: MockClock,
) -> None:
    """Brokers give all messages again that were given together, if one is suspended."""
    async with lite_proxy() as here:
        brokers = here.brokers
        brokers.answers[POP] = brokers.popped
        lite_topics = ("a", "a", "b", "b")
        brokers.given = [
            [
                record("sessions", number, bytes(60_000), __LITE_TOPIC=name)
                for number, name in enumerate(lite_topics)
            ]
        ]
        client = await here.client()
        client.takes = False
        call = await client.call("ReceiveMessage")
        await call.send(receiving("sessions", "agents"), is_last=True)
        await call.until_headers()
        await call.cancel()
        await trio.sleep(5)
        hidden = brokers.of(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        given_back = [(one.fields["liteTopic"], one.fields.get("suspend")) for one in hidden]
        assert given_back == [("a", None), ("b", "true"), ("b", "true")]


async def test_a_new_leader_is_told_before_the_next_receive(autojump_clock: MockClock) -> None:
    async with lite_proxy() as here:
        brokers = here.brokers
        client = await here.client("one")
        await client.unary(subscribing("a", "b"))
        await client.unary(subscribing("b", action=LiteSubscriptionAction.PARTIAL_REMOVE))
        await client.receive(receiving("sessions", "agents"))
        assert brokers.codes()[-3:] == [SUBSCRIBE, RequestCode.GET_TOPIC_CONFIG, POP]
        brokers.elect_another("sessions")
        await client.receive(receiving("sessions", "agents"))
        await client.receive(receiving("sessions", "agents"))
        assert brokers.codes()[-3:] == [SUBSCRIBE, POP, POP]
        told = last_told(brokers)
        assert (told["action"], told["clientId"]) == ("COMPLETE_ADD", "one")
        assert told["liteTopicSet"] == ["a"]
        await client.unary(messages.NotifyClientTerminationRequest())
        await trio.sleep(1)
        told = last_told(brokers)
        assert (told["action"], told["clientId"]) == ("COMPLETE_REMOVE", "one")


async def test_a_leader_that_leads_anew_is_told_again(autojump_clock: MockClock) -> None:
    """It forgets what clients want, and answers their pops, when its term ends."""
    async with lite_proxy() as here:
        brokers = here.brokers
        brokers.slow_s[POP] = 2.0
        client = await here.client("one")
        await client.unary(subscribing("a"))
        for _ in range(2):
            await client.receive(receiving("sessions", "agents", wait_s=2.0))
        assert len(brokers.of(SUBSCRIBE)) == 1, "they waited for as long as they asked"
        await client.receive(receiving("sessions", "agents", wait_s=10.0))
        await client.receive(receiving("sessions", "agents", wait_s=2.0))
        assert brokers.codes()[-3:] == [POP, SUBSCRIBE, POP]
        told = last_told(brokers)
        assert (told["action"], told["liteTopicSet"]) == ("COMPLETE_ADD", ["a"])


async def test_a_set_that_a_newer_one_has_overtaken_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    """Brokers pass it over, too."""
    async with lite_proxy() as here:
        brokers = here.brokers
        client = await here.client("one")
        for names, version in (("ab", 2), ("a", 1)):
            asked = subscribing(*names, action=SET)
            asked.version = version
            assert (await client.unary(asked)).status.code == Code.OK
        brokers.elect_another("sessions")
        await client.receive(receiving("sessions", "agents"))
        told = last_told(brokers)
        assert (told["liteTopicSet"], told["version"]) == (["a", "b"], 2)


async def test_a_new_leader_knows_a_client_that_reads_all_lite_topics(
    autojump_clock: MockClock,
) -> None:
    """A client of a wildcard group names none."""
    async with lite_proxy() as here:
        brokers = here.brokers
        client = await here.client("one")
        await client.unary(subscribing(action=SET))
        brokers.elect_another("sessions")
        await client.receive(receiving("sessions", "agents"))
        assert brokers.codes()[-2:] == [SUBSCRIBE, POP]
        told = last_told(brokers)
        assert (told["action"], told["liteTopicSet"]) == ("COMPLETE_ADD", [])
        await client.unary(messages.NotifyClientTerminationRequest())
        await trio.sleep(1)
        told = last_told(brokers)
        assert (told["action"], told["clientId"]) == ("COMPLETE_REMOVE", "one")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.LMQ_QUOTA_EXCEEDED, Code.LITE_TOPIC_QUOTA_EXCEEDED),
        (
            ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
            Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
        ),
        (ResponseCode.NO_PERMISSION, Code.UNAUTHORIZED),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
    ],
)
async def test_what_brokers_refuse_has_its_code(
    code: ResponseCode, status: Code, autojump_clock: MockClock
) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic("sessions")
        here.brokers.answers[SUBSCRIBE] = lambda command: command.reply(code, remark="no")
        client = await here.client()
        assert (await client.unary(subscribing("a"))).status.code == status


async def test_names_and_numbers_of_lite_topics_are_bounded(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic("sessions")
        client = await here.client()
        for name in ("", "a b", "x" * 65, "%", "\u00e9"):
            refused = await client.unary(subscribing(name))
            assert refused.status.code == Code.ILLEGAL_LITE_TOPIC, name
        many = await client.unary(subscribing(*map(str, range(10_001)), action=SET))
        assert many.status.code == Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert here.brokers.of(SUBSCRIBE) == []
