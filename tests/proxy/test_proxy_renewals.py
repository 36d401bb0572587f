"""Messages that are renewed for their clients, in virtual time, on brokers of a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from proxy.clients.sessions import EXPIRE_S
from proxy.receiving import renewals
from proxy.receiving.receipt_handle import read_handle
from proxy.wire.messages_pb2 import Code, HeartbeatRequest, Message, NotifyClientTerminationRequest
from remoting.message.record import MessageRecord
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from tests.proxy.grpc_client import GrpcClient
from tests.proxy.real_proxy import acknowledging, changing, receiving
from tests.proxy.scripted_brokers import ScriptedBrokers, ScriptedProxy, record, scripted_proxy

TOPIC = "Orders"
RENEW = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
ACK = RequestCode.ACK_MESSAGE


class HeldMessage:
    """What a broker knows of its one message.

    Attributes:
        handle: the only one that it takes.
        visible_at: on trio's clock.
        is_acknowledged: by the right handle.
        lost: how many of the next answers do not arrive.
    """

    def __init__(self, brokers: ScriptedBrokers) -> None:
        self.handle = ""
        self.visible_at = 0.0
        self.is_acknowledged = False
        self.lost = 0
        brokers.answers[RENEW] = self.change
        brokers.answers[ACK] = self.acknowledge

    @property
    def is_hidden(self) -> bool:
        return trio.current_time() < self.visible_at

    def give(self, given: Message) -> None:
        handle = read_handle(given.system_properties.receipt_handle)
        self.handle = handle.broker_words
        self.visible_at = trio.current_time() + handle.invisible_ms / 1000

    def _check(self, command: Command) -> Command | RemotingError | None:
        if self.lost:
            self.lost -= 1
            return command.reply(ResponseCode.NOT_LEADER_FOR_QUEUE, remark="an election")
        if command.fields["extraInfo"] != self.handle or not self.is_hidden:
            return command.reply(ResponseCode.NO_MESSAGE, remark="given again")
        return None

    def change(self, command: Command) -> Command | RemotingError | None:
        refusal = self._check(command)
        if refusal is not None:
            return refusal
        invisible_ms = int(command.fields["invisibleTime"])
        popped_ms = round(trio.current_time() * 1000)
        self.visible_at = trio.current_time() + invisible_ms / 1000
        first, _popped, _invisible, *rest = self.handle.split()
        self.handle = " ".join([first, str(popped_ms), str(invisible_ms), *rest])
        fields = {"popTime": popped_ms, "invisibleTime": invisible_ms, "reviveQid": 0}
        return command.reply(0, {name: str(value) for name, value in fields.items()})

    def acknowledge(self, command: Command) -> Command | RemotingError | None:
        refusal = self._check(command)
        self.is_acknowledged |= refusal is None
        return refusal or command.reply()


async def _given(here: ScriptedProxy, client: GrpcClient, *records: MessageRecord) -> list[Message]:
    """Messages of a receive with auto_renew, by a client that is known."""
    await client.unary(HeartbeatRequest())
    here.brokers.topic(TOPIC)
    here.brokers.given = [list(records) or [record(TOPIC, 7)]]
    found = await client.receive(receiving(TOPIC, auto_renew=True))
    assert found.code == Code.OK
    return found.messages


async def _one_given(here: ScriptedProxy, client: GrpcClient) -> tuple[Message, HeldMessage]:
    (given,) = await _given(here, client)
    held = HeldMessage(here.brokers)
    held.give(given)
    return given, held


@asynccontextmanager
async def one_held() -> AsyncIterator[tuple[ScriptedProxy, GrpcClient, Message, HeldMessage]]:
    """A proxy, and its client that was given a message."""
    async with scripted_proxy() as here:
        client = await here.client()
        yield here, client, *await _one_given(here, client)


async def _stay(client: GrpcClient, seconds: float) -> None:
    """Let time pass, with heartbeats."""
    until = trio.current_time() + seconds
    while (left := until - trio.current_time()) > 0:
        await trio.sleep(min(left, 100.0))
        await client.unary(HeartbeatRequest())


async def test_a_message_is_renewed_until_its_first_handle_acknowledges_it(
    autojump_clock: MockClock,
) -> None:
    async with one_held() as (here, client, given, held):
        for _ in range(60):
            await _stay(client, 60)
            assert held.is_hidden
        steps_ms = [int(one.fields["invisibleTime"]) for one in here.brokers.of(RENEW)]
        assert steps_ms[:6] == [60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000]
        answer = await client.unary(acknowledging(TOPIC, given))
        assert answer.status.code == Code.OK
        assert held.is_acknowledged
        assert len(here.proxy.renewals) == 0


async def test_a_message_is_left_to_others_after_three_hours(autojump_clock: MockClock) -> None:
    async with one_held() as (here, client, _, held):
        await _stay(client, 3 * 3600 - 10)
        assert held.is_hidden
        await _stay(client, 3700)
        assert not held.is_hidden
        assert len(here.proxy.renewals) == 0


async def test_messages_of_one_host_leave_room_for_the_renewal_of_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewals, "MAX_RENEWED", 10)
    async with scripted_proxy() as here:
        greedy = await here.client(peer="10.0.0.1:1")
        given = await _given(here, greedy, *(record(TOPIC, offset) for offset in range(20)))
        assert len(given) == 20
        assert len(here.proxy.renewals) == 8
        assert "8 messages are renewed, and of host 10.0.0.1 8" in caplog.text
        other = await here.client(peer="10.0.0.2:1")
        await _given(here, other, record(TOPIC, 20))
        assert len(here.proxy.renewals) == 9
        for message in given:
            await greedy.unary(acknowledging(TOPIC, message))
        assert len(here.proxy.renewals) == 1
        await _given(here, greedy, *(record(TOPIC, offset) for offset in range(30, 50)))
        assert len(here.proxy.renewals) == 9


async def test_a_client_that_is_gone_keeps_no_message(autojump_clock: MockClock) -> None:
    """By its own word, or by its silence: others get its messages in a second."""
    async with scripted_proxy() as here:
        for leaves in (True, False):
            client = await here.client()
            _, held = await _one_given(here, client)
            if leaves:
                await client.unary(NotifyClientTerminationRequest())
            else:
                await trio.sleep(EXPIRE_S - 1)
                assert held.is_hidden
                await trio.sleep(6)
            await trio.sleep(4)
            assert not held.is_hidden
            assert len(here.proxy.renewals) == 0


async def test_clients_of_a_proxy_that_ends_keep_their_messages(autojump_clock: MockClock) -> None:
    """They go on at another proxy, where the same handles hold."""
    async with one_held() as (here, _client, _, held):
        here.proxy.sessions.end_all()
        await trio.sleep(50)
        assert held.is_hidden
        assert here.brokers.of(RENEW) == []


async def test_an_election_does_not_end_a_renewal(autojump_clock: MockClock) -> None:
    async with one_held() as (here, client, _, held):
        await _stay(client, 49)
        # For longer than one renewal tries, and to its end before the message is visible.
        here.brokers.answers[RENEW] = lambda command: command.reply(
            ResponseCode.SLAVE_NOT_AVAILABLE, remark="no leader"
        )
        await _stay(client, 7.5)
        here.brokers.answers[RENEW] = held.change
        await _stay(client, 30)
        assert held.is_hidden


async def test_an_acknowledgement_that_fails_may_be_repeated_by_the_first_handle(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        client = await here.client()
        for cause in ("no leader", "silence"):
            given, held = await _one_given(here, client)
            await _stay(client, 100)
            assert given.system_properties.receipt_handle.startswith("7 1700000000000 60000 ")
            acknowledge = here.brokers.answers[ACK]
            if cause == "no leader":
                here.brokers.answers[ACK] = lambda command: command.reply(
                    ResponseCode.SLAVE_NOT_AVAILABLE, remark="no leader"
                )
            else:
                here.brokers.answers[ACK] = lambda _command: None
            failed = await client.unary(acknowledging(TOPIC, given), timeout_s=3)
            assert failed.status.code in (Code.HA_NOT_AVAILABLE, Code.PROXY_TIMEOUT)
            await _stay(client, 300)
            assert held.is_hidden, "it is renewed on"
            here.brokers.answers[ACK] = acknowledge
            answer = await client.unary(acknowledging(TOPIC, given))
            assert answer.status.code == Code.OK, cause
            assert held.is_acknowledged


async def test_a_late_acknowledgement_does_not_end_the_renewal_of_a_later_delivery(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        slow, quick = await here.client(), await here.client()
        given, held = await _one_given(here, slow)
        old = given.system_properties.receipt_handle.replace("1700000000000", "1699999000000")
        late = await quick.unary(acknowledging(TOPIC, old))
        assert late.status.code == Code.INVALID_RECEIPT_HANDLE
        await _stay(slow, 300)
        assert held.is_hidden
        assert not held.is_acknowledged


async def test_a_message_and_its_retry_of_one_queue_and_offset_are_two(
    autojump_clock: MockClock,
) -> None:
    async with scripted_proxy() as here:
        client = await here.client()
        retried = record(f"%RETRY%readers_{TOPIC}", 7, RETRY_TOPIC=TOPIC)
        await _given(here, client, record(TOPIC, 7), retried)
        assert len(here.proxy.renewals) == 2
        await _stay(client, 55)
        topics = {command.fields["topic"] for command in here.brokers.of(RENEW)}
        assert topics == {TOPIC, f"%RETRY%readers_{TOPIC}"}


async def test_a_time_that_a_client_sets_is_not_renewed(autojump_clock: MockClock) -> None:
    async with one_held() as (here, client, given, held):
        await _stay(client, 100)
        first = given.system_properties.receipt_handle
        answer = await client.unary(changing(TOPIC, first, 20))
        assert answer.status.code == Code.OK
        assert answer.receipt_handle != first
        assert len(here.proxy.renewals) == 0
        await _stay(client, 19)
        assert held.is_hidden
        stale = await client.unary(acknowledging(TOPIC, first))
        assert stale.status.code == Code.INVALID_RECEIPT_HANDLE
        newest = await client.unary(acknowledging(TOPIC, answer.receipt_handle))
        assert newest.status.code == Code.OK
        assert held.is_acknowledged
