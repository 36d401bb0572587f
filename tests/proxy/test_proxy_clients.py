"""The clients of a proxy: their settings, their streams, and how they are forgotten."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from google.protobuf.json_format import ParseDict
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.clients import sessions
from proxy.clients import settings as settings_module
from proxy.clients.sessions import EXPIRE_S, Session
from proxy.clients.settings import MAX_SETTINGS_BYTES, MAX_TOPICS
from proxy.http2.limits import Limits
from proxy.wire.messages_pb2 import (
    ClientType,
    Code,
    HeartbeatRequest,
    Language,
    NotifyClientTerminationRequest,
    Settings,
    TelemetryCommand,
)
from remoting.wire.codes import RequestCode, ResponseCode
from tests.proxy.grpc_client import GrpcClient, GrpcFailed
from tests.proxy.scripted_brokers import ScriptedProxy, scripted_proxy
from tests.proxy.settings_of_clients import consumer_settings, producer_settings

INVALID_ARGUMENT, UNAVAILABLE = 3, 14
_CAPTURED = Path(__file__).parent / "data" / "settings.jsonl"


def _topics(here: ScriptedProxy, count: int = 4) -> list[str]:
    return [here.brokers.topic(f"T{number}") for number in range(1, count + 1)]


async def test_settings_are_those_that_the_proxy_in_java_gives(autojump_clock: MockClock) -> None:
    """The client in JavaScript reads no list of pauses: it gets another policy."""
    lines = _CAPTURED.read_text().splitlines()
    assert len(lines) == 12
    for line in lines:
        captured = json.loads(line)
        sent = ParseDict(captured["sent"], Settings())
        expected = ParseDict(captured["got"], Settings())
        async with scripted_proxy() as here:
            _topics(here)
            retries = expected.backoff_policy.max_attempts - 1
            here.brokers.groups["Readers"] = {"retryMaxTimes": retries}
            client = await here.client()
            stream = await client.telemetry()
            got = await stream.settle(sent)
            if captured["client"] == "node" and sent.client_type != ClientType.PRODUCER:
                assert got.backoff_policy.max_attempts == retries + 1
                assert got.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
                got.backoff_policy.CopyFrom(expected.backoff_policy)
            assert got == expected, captured["client"]


async def _settled(here: ScriptedProxy, settings: Settings) -> Settings:
    client = await here.client()
    stream = await client.telemetry()
    return await stream.settle(settings)


async def test_settings_follow_the_group(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic("Orders")
        groups = here.brokers.groups
        groups["ordered"] = {"consumeMessageOrderly": True}
        groups["pauses"] = {
            "retryMaxTimes": 3,
            "groupRetryPolicy": {
                "type": "CUSTOMIZED",
                "customizedRetryPolicy": {"next": [1000, 2500]},
            },
        }
        groups["grows"] = {
            "groupRetryPolicy": {
                "type": "EXPONENTIAL",
                "exponentialRetryPolicy": {"initial": 100, "max": 900, "multiplier": 3},
            }
        }
        settle = partial(_settled, here)
        ordered = await settle(consumer_settings("Orders", group="ordered"))
        assert ordered.subscription.fifo
        pauses = (await settle(consumer_settings("Orders", group="pauses"))).backoff_policy
        assert pauses.max_attempts == 4
        assert [one.ToMilliseconds() for one in pauses.customized_backoff.next] == [1000, 2500]
        grows = (await settle(consumer_settings("Orders", group="grows"))).backoff_policy
        backoff = grows.exponential_backoff
        assert (backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds()) == (100, 900)
        assert backoff.multiplier == 3
        unknown = await settle(consumer_settings("Orders", group="never-made"))
        assert unknown.backoff_policy.max_attempts == 17
        assert not unknown.subscription.fifo
        nowhere = await settle(consumer_settings("Nowhere", group="ordered"))
        assert nowhere.backoff_policy.max_attempts == 17
        lite = consumer_settings("Orders", kind=ClientType.LITE_PUSH_CONSUMER)
        found = (await settle(lite)).subscription
        assert (found.lite_subscription_quota, found.max_lite_topic_size) == (2000, 64)


@pytest.mark.parametrize(
    ("told", "quota"), [("5000", 5000), ("1", 1), ("-1", 10_000), ("999999", 10_000), ("x", 2000)]
)
async def test_the_quota_of_lite_topics_is_the_groups(
    told: str, quota: int, autojump_clock: MockClock
) -> None:
    """Clients refuse by themselves what goes beyond the quota in their settings."""
    async with scripted_proxy() as here:
        here.brokers.topic("Chats")
        here.brokers.groups["agents"] = {"attributes": {"lite.sub.client.quota": told}}
        wanted = consumer_settings("Chats", group="agents", kind=ClientType.LITE_PUSH_CONSUMER)
        assert (await _settled(here, wanted)).subscription.lite_subscription_quota == quota


async def test_pauses_of_the_client_in_javascript_are_seconds_that_it_takes_for_milliseconds(
    autojump_clock: MockClock,
) -> None:
    """A later version may have mended that, and gets them as they are."""
    async with scripted_proxy() as here:
        here.brokers.topic("Orders")
        here.brokers.groups["grows"] = {
            "groupRetryPolicy": {
                "type": "EXPONENTIAL",
                "exponentialRetryPolicy": {"initial": 100, "max": 900, "multiplier": 3},
            }
        }
        for version, seconds in (("1.0.8", 100), ("1.0.9", 0.1), ("next", 0.1), ("", 0.1)):
            settings = consumer_settings("Orders", group="grows", language=Language.NODE_JS)
            settings.user_agent.version = version
            backoff = (await _settled(here, settings)).backoff_policy.exponential_backoff
            assert backoff.initial.ToMilliseconds() == seconds * 1000
            assert backoff.max.ToMilliseconds() == seconds * 9000


_ODD_POLICIES: tuple[dict[str, Any], ...] = (
    {"retryMaxTimes": -5},
    {"retryMaxTimes": 2**31 - 1},
    {"groupRetryPolicy": {}},
    {"groupRetryPolicy": {"type": "EXPONENTIAL"}},
    {"groupRetryPolicy": {"type": "OTHER", "customizedRetryPolicy": {"next": []}}},
    {"groupRetryPolicy": {"customizedRetryPolicy": {"next": [True, "x"]}}},
    {"groupRetryPolicy": {"customizedRetryPolicy": {"next": [2**62, -1]}}},
    {"groupRetryPolicy": {"customizedRetryPolicy": {"next": [1] * 65}}},
    {
        "groupRetryPolicy": {
            "type": "EXPONENTIAL",
            "exponentialRetryPolicy": {"initial": 2**62, "max": -1, "multiplier": 0},
        }
    },
)


async def test_odd_policies_of_groups_are_kept_within_bounds(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic("Orders")
        for number, policy in enumerate(_ODD_POLICIES):
            here.brokers.groups[f"g{number}"] = policy
            got = (
                await _settled(here, consumer_settings("Orders", group=f"g{number}"))
            ).backoff_policy
            assert 1 <= got.max_attempts <= 2**31 - 1
            assert got.WhichOneof("strategy")
            for pause in got.customized_backoff.next:
                assert 0 <= pause.ToMilliseconds() <= 86_400_000
            assert 0 <= got.exponential_backoff.initial.ToMilliseconds() <= 86_400_000
        here.brokers.answers[RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG] = lambda command: (
            command.reply(body=b"rubbish")
        )
        with pytest.raises(GrpcFailed) as failed:
            await _settled(here, consumer_settings("Orders", group="rubbish"))
        assert failed.value.code == UNAVAILABLE


async def test_the_client_in_javascript_gets_its_settings_again(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        here.brokers.topic("Orders")
        for language, times in ((Language.NODE_JS, 3), (Language.JAVA, 1)):
            client = await here.client()
            stream = await client.telemetry()
            await stream.send(producer_settings("Orders", language=language))
            await stream.call.end()
            await trio.sleep(5)
            client = await here.client()
            stream = await client.telemetry()
            await stream.send(producer_settings("Orders", language=language))
            found = []
            with trio.move_on_after(5):
                while (told := await stream.receive()) is not None:
                    found.append(told)
            assert found == [found[0]] * times


async def test_wrong_settings_end_the_stream_with_a_status(autojump_clock: MockClock) -> None:
    nothing = Settings(client_type=ClientType.PRODUCER)
    refused: tuple[tuple[Settings, int], ...] = (
        (nothing, INVALID_ARGUMENT),
        (producer_settings("a b"), INVALID_ARGUMENT),
        (producer_settings("Orders", "TBW102"), INVALID_ARGUMENT),
        (consumer_settings("Orders", group=""), INVALID_ARGUMENT),
        (consumer_settings("Orders", group="a b"), INVALID_ARGUMENT),
        (consumer_settings("Orders", ""), INVALID_ARGUMENT),
        (producer_settings(*(f"T{number}" for number in range(MAX_TOPICS + 1))), UNAVAILABLE),
    )
    async with scripted_proxy() as here:
        here.brokers.topic("Orders")
        for settings, code in refused:
            with pytest.raises(GrpcFailed) as failed:
                await _settled(here, settings)
            assert failed.value.code == code, settings
            assert failed.value.text
        here.brokers.answers[RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG] = lambda command: (
            command.reply(ResponseCode.SYSTEM_ERROR, remark="ill")
        )
        with pytest.raises(GrpcFailed) as failed:
            await _settled(here, consumer_settings("Orders"))
        assert failed.value.code == UNAVAILABLE


async def test_topics_of_settings_are_counted_before_each_is_looked_at(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_at(_topic: object) -> str:
        raise AssertionError("a topic was looked at")

    monkeypatch.setattr(settings_module, "topic_name", looked_at)
    count = MAX_TOPICS + 1
    for many in (
        producer_settings(*["Orders"] * count),
        consumer_settings(*["Orders"] * count),
    ):
        async with scripted_proxy() as here:
            with pytest.raises(GrpcFailed) as failed:
                await _settled(here, many)
            assert failed.value.code == UNAVAILABLE


async def test_large_settings_are_refused_and_few_characters_of_a_version_are_looked_at(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go back to the client as they came; and each dot of a version cost a tenth of a us."""
    looked_at: list[str] = []
    monkeypatch.setattr(settings_module, "read_natural", looked_at.append)
    async with scripted_proxy() as here:
        here.brokers.topic("Orders")
        settings = consumer_settings("Orders", language=Language.NODE_JS)
        settings.user_agent.version = "1." * (MAX_SETTINGS_BYTES // 2)
        with pytest.raises(GrpcFailed) as failed:
            await _settled(here, settings)
        assert failed.value.code == UNAVAILABLE
        settings.user_agent.version = settings.user_agent.version[:-1000]
        await _settled(here, settings)
        assert len(looked_at) <= 64


async def test_a_stream_says_its_headers_before_any_command(autojump_clock: MockClock) -> None:
    """The client in Rust sends its settings after them."""
    async with scripted_proxy() as here:
        client = await here.client()
        stream = await client.telemetry()
        with trio.fail_after(1):
            await stream.call.until_headers()


async def _is_told(session: Session, stream: Any) -> bool:
    """Whether a command for a client comes by a stream."""
    session.tell(TelemetryCommand())
    with trio.move_on_after(1):
        return await stream.receive() is not None
    return False


async def test_the_newer_stream_of_a_client_gets_its_commands(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        client = await here.client("one@and@the@same")
        first = await client.telemetry()
        await first.settle(consumer_settings())
        again = await here.client("one@and@the@same")
        second = await again.telemetry()
        await second.settle(consumer_settings())
        assert len(here.proxy.sessions) == 1
        session = here.proxy.sessions.find("one@and@the@same")
        assert session is not None
        assert await _is_told(session, second)
        assert not await _is_told(session, first)
        await first.call.cancel()
        await second.receive()  # what the first one was not told
        assert session.has_stream
        assert await _is_told(session, second)


async def test_a_heartbeat_without_settings_is_answered(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        client = await here.client()
        request = HeartbeatRequest(client_type=ClientType.PUSH_CONSUMER)
        request.group.name = "readers"
        assert (await client.unary(request)).status.code == Code.OK
        assert (await client.unary(HeartbeatRequest())).status.code == Code.OK
        request.group.name = "a b"
        assert (await client.unary(request)).status.code == Code.ILLEGAL_CONSUMER_GROUP
        nameless = await here.client(None)
        refused = await nameless.unary(HeartbeatRequest())
        assert refused.status.code == Code.CLIENT_ID_REQUIRED
        for name in (" ", "x" * 256):
            nameless.client_id = name
            refused = await nameless.unary(HeartbeatRequest())
            assert refused.status.code == Code.CLIENT_ID_REQUIRED
        nameless.client_id = "x" * 255
        assert (await nameless.unary(HeartbeatRequest())).status.code == Code.OK


async def _end_of(client: GrpcClient, settings: Settings) -> float:
    """When a client's stream ends, which must be without an error."""
    stream = await client.telemetry()
    await stream.settle(settings)
    while await stream.receive() is not None:
        pass
    return trio.current_time()


async def test_a_client_is_forgotten_when_it_leaves_or_is_silent(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        client = await here.client()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_of, client, consumer_settings())
            await wait_all_tasks_blocked()
            assert len(here.proxy.sessions) == 1
            answer = await client.unary(NotifyClientTerminationRequest())
            assert answer.status.code == Code.OK
        assert len(here.proxy.sessions) == 0
        again = await client.unary(NotifyClientTerminationRequest())
        assert again.status.code == Code.OK
        began = trio.current_time()
        ended = await _end_of(client, consumer_settings())
        assert EXPIRE_S <= ended - began <= EXPIRE_S + 6
        assert len(here.proxy.sessions) == 0


async def test_heartbeats_keep_a_client(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        client = await here.client()
        stream = await client.telemetry()
        await stream.settle(producer_settings())
        for _ in range(20):
            await trio.sleep(30)  # as the client in Rust
            await client.unary(HeartbeatRequest())
        session = here.proxy.sessions.find(client.client_id or "")
        assert session is not None
        assert await _is_told(session, stream)


async def test_there_is_a_limit_of_clients(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_CLIENTS", 2)
    async with scripted_proxy() as here:
        clients = [await here.client() for _ in range(3)]
        answers = [await client.unary(HeartbeatRequest()) for client in clients]
        codes = [answer.status.code for answer in answers]
        assert codes == [Code.OK, Code.OK, Code.TOO_MANY_REQUESTS]
        stream = await clients[2].telemetry()
        with pytest.raises(GrpcFailed) as failed:
            await stream.settle(producer_settings())
        assert failed.value.code == UNAVAILABLE
        assert (await clients[0].unary(HeartbeatRequest())).status.code == Code.OK


async def test_clients_of_one_host_leave_places_to_those_of_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids cost nothing: one host could take all places, for two minutes each."""
    monkeypatch.setattr(sessions, "MAX_CLIENTS", 6)
    async with scripted_proxy() as here:
        greedy = await here.client("streams", peer="10.0.0.1:1")
        stream = await greedy.telemetry()
        await stream.settle(producer_settings())
        codes = []
        for number in range(9):
            greedy.client_id = f"invented {number}"
            codes.append((await greedy.unary(HeartbeatRequest())).status.code)
            await trio.sleep(0.1)
        assert codes == [Code.OK] * 5 + [Code.TOO_MANY_REQUESTS] * 4
        greedy.client_id = "invented 0"
        assert (await greedy.unary(HeartbeatRequest())).status.code == Code.OK
        other = await here.client(peer="[fe80::1]:1")
        codes = []
        for number in range(4):
            other.client_id = f"other {number}"
            codes.append((await other.unary(HeartbeatRequest())).status.code)
        assert codes == [Code.OK] * 3 + [Code.TOO_MANY_REQUESTS]
        # Those without a stream go first, and of them those that were silent for longest.
        names = ["streams", *(f"invented {number}" for number in range(9))]
        left = [name for name in names if here.proxy.sessions.find(name) is not None]
        assert left == ["streams", "invented 0", "invented 4"]
        third = await here.client("third", peer="10.0.0.3:1")
        assert (await third.unary(HeartbeatRequest())).status.code == Code.OK
        assert len(here.proxy.sessions) == 6


async def test_the_topics_of_all_clients_are_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_TOPICS_OF_ALL", 4)
    async with scripted_proxy() as here:
        _topics(here)
        first, second = await here.client(), await here.client()
        stream = await first.telemetry()
        await stream.settle(producer_settings("T1", "T2"))
        await stream.settle(consumer_settings("T1", "T2", "T3"))
        other = await second.telemetry()
        with pytest.raises(GrpcFailed) as failed:
            await other.settle(producer_settings("T1", "T2"))
        assert failed.value.code == UNAVAILABLE
        elsewhere = await here.client(peer="10.0.0.1:1")
        stream = await elsewhere.telemetry()
        await stream.settle(producer_settings("T1", "T2"))
        assert here.proxy.sessions.find(first.client_id or "") is None, "its host had most"
        await elsewhere.unary(NotifyClientTerminationRequest())
        other = await second.telemetry()
        await other.settle(producer_settings("T1", "T2", "T3", "T4"))


async def test_the_next_stream_of_a_client_gets_nothing_that_the_last_one_was_not_told(
    autojump_clock: MockClock,
) -> None:
    """It may be another user's, who has chosen the same id."""
    async with scripted_proxy() as here:
        client = await here.client("one@and@the@same")
        first = await client.telemetry()
        await first.settle(producer_settings())
        session = here.proxy.sessions.find("one@and@the@same")
        assert session is not None
        client.takes = False
        asked = TelemetryCommand()
        asked.recover_orphaned_transaction_command.message.body = bytes(100_000)
        for _ in range(2):
            session.tell(asked)
            await trio.sleep(0.1)
        assert session.untold_bytes
        await first.call.cancel()
        await trio.sleep(0.1)
        assert not session.untold_bytes
        another = await here.client("one@and@the@same")
        second = await another.telemetry()
        told = []
        with trio.move_on_after(1):
            told.append(await second.receive())
        assert told == []


async def test_a_client_that_reads_no_commands_costs_little(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        client = await here.client(limits=Limits(unread_s=1000.0))
        stream = await client.telemetry()
        await stream.settle(producer_settings())
        client.takes = False
        large = producer_settings(language=Language.NODE_JS)
        for number in range(15):
            large.client_properties[f"{number}"] = "x" * 32_000
        for _ in range(40):
            await stream.send(large)
        await trio.sleep(5)
        session = here.proxy.sessions.find(client.client_id or "")
        assert session is not None
        assert session.untold_bytes < 16 * 1024 * 1024
        asked = TelemetryCommand()
        asked.recover_orphaned_transaction_command.message.body = bytes(4 * 1024 * 1024)
        for _ in range(20):
            session.tell(asked)
        assert session.untold_bytes < 16 * 1024 * 1024
        assert session.untold_bytes


async def test_a_proxy_that_ends_ends_the_streams_of_clients(autojump_clock: MockClock) -> None:
    async with scripted_proxy() as here:
        client = await here.client()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_of, client, consumer_settings())
            await wait_all_tasks_blocked()
            here.proxy.sessions.end_all()
        assert len(here.proxy.sessions) == 0
