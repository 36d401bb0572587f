"""Receives that ask for the same share a few pops: who is given what, and when each one ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from dledger_mq import Client
from dledger_mq.connection.topic_route import ClientRoute
from proxy.receiving import held_pops as held_pops_module
from proxy.receiving import receives
from proxy.receiving.held_pops import MOST_POPS_A_LINE, TICK_S, HeldPops
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code
from remoting.bodies.message_queue import MessageQueue
from remoting.net.errors import ConnectionClosed
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from tests.examples import seeds
from tests.proxy.real_proxy import receiving
from tests.proxy.scripted_brokers import scripted_proxy

QUEUE = MessageQueue("Orders", "broker-a", 0)
FIRST, SECOND = "one:10911", "two:10911"
HOST = "10.0.0.1"


@dataclass(eq=False)
class Pop:
    command: Command
    settle: Callable[[Command | RemotingError], None]


class Broker:
    """Brokers of one group that hold pops: the first pop is given the next message.

    Attributes:
        held: pops that wait at the leader, the oldest first.
        leader: its address.
        asked: how many pops came.
        probed: receives for which a broker is probed.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.held: dict[Pop, None] = {}
        self.leader = FIRST
        self.asked = self.probed = 0
        self.messages: list[bytes] = []
        self._nursery = nursery
        self._watchers: list[Callable[[ClientRoute], None]] = []
        silence = SimpleNamespace(held_by=self._held_by)
        remoting = SimpleNamespace(request_nowait=self._asked)
        routes = SimpleNamespace(watch=self._watchers.append)
        given = SimpleNamespace(silence=silence, remoting=remoting, routes=routes)
        self.pops = HeldPops(cast(Client, given))

    @contextmanager
    def _held_by(self, _address: str, _queue: MessageQueue) -> Iterator[None]:
        self.probed += 1
        yield
        self.probed -= 1

    def _asked(self, address: str, command: Command, settle: Any, _timeout_s: float) -> None:
        self._nursery.start_soon(self._hold, address, command, settle)

    async def _hold(self, address: str, command: Command, settle: Any) -> None:
        await trio.sleep(0.001)
        self.asked += 1
        if address != self.leader:
            return
        pop = Pop(command, settle)
        self.held[pop] = None
        self._give()
        await trio.sleep(float(command.fields["hold"]))
        self.answer(pop, command.reply(ResponseCode.POLLING_TIMEOUT))

    def answer(self, pop: Pop, outcome: Command | RemotingError) -> None:
        if pop in self.held:
            del self.held[pop]
            pop.settle(outcome)

    def _give(self) -> None:
        while self.messages and self.held:
            first = next(iter(self.held))
            self.answer(first, first.command.reply(0, body=self.messages.pop(0)))

    def send(self, message: bytes) -> None:
        self.messages.append(message)
        self._give()

    def lead(self, address: str) -> None:
        """Let another broker lead; the old one answers no more."""
        self.leader = address
        self.held.clear()
        for watcher in self._watchers:
            watcher(ClientRoute("Orders", (QUEUE,), (QUEUE,), {"broker-a": address}))


class Receiver:
    """A receive.

    Attributes:
        began: its place in the order of all.
        outcome: what it got; empty for nothing, None without an answer.
        ended_at: when.
    """

    def __init__(self, began: int, wait_s: float, host: str) -> None:
        self.began = began
        self.host = host
        self.wait_s = wait_s
        self.until = trio.current_time() + wait_s
        self.scope = trio.CancelScope()
        self.outcome: bytes | None = None
        self.error: RemotingError | Refused | None = None
        self.ended_at: float | None = None
        self.was_cancelled = False

    async def run(self, broker: Broker, address: str, alike: str | None, late: Any) -> None:
        def make(hold_s: float) -> Command:
            return Command(RequestCode.POP_MESSAGE, {"hold": str(hold_s)})

        with self.scope:
            try:
                reply = await broker.pops.ask(
                    address, QUEUE, alike, self.host, make, self.wait_s, late
                )
            except (RemotingError, Refused) as error:
                self.error = error
            else:
                self.outcome = None if reply is None else reply.body
        self.was_cancelled = self.scope.cancelled_caught
        self.ended_at = trio.current_time()


class Here:
    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self.broker = broker
        self.late: list[bytes] = []
        self.all: list[Receiver] = []
        self.address = FIRST
        self._nursery = nursery

    async def receive(
        self, wait_s: float, alike: str | None = "alike", host: str = HOST
    ) -> Receiver:
        receiver = Receiver(len(self.all), wait_s, host)
        self.all.append(receiver)
        late = lambda reply: self.late.append(reply.body)  # noqa: E731
        self._nursery.start_soon(receiver.run, self.broker, self.address, alike, late)
        await wait_all_tasks_blocked()
        return receiver

    def waiting(self) -> list[Receiver]:
        return [one for one in self.all if one.ended_at is None]


@asynccontextmanager
async def held_pops() -> AsyncIterator[Here]:
    async with trio.open_nursery() as nursery:
        broker = Broker(nursery)
        nursery.start_soon(broker.pops.run)
        yield Here(broker, nursery)
        nursery.cancel_scope.cancel()


async def test_a_few_pops_wait_for_all_receives_that_ask_for_the_same(
    autojump_clock: MockClock,
) -> None:
    async with held_pops() as here:
        for _ in range(50):
            await here.receive(20)
        await trio.sleep(1)
        assert len(here.broker.held) == here.broker.asked == MOST_POPS_A_LINE
        for number in range(20):
            here.broker.send(b"%d" % number)
            await trio.sleep(0.1)
        served = [one.outcome for one in here.all[:20]]
        assert served == [b"%d" % number for number in range(20)]  # the oldest first
        await trio.sleep(30)
        assert not any(one.outcome for one in here.all[20:])
        assert not here.waiting()
        assert here.broker.asked <= 20 + 2 * MOST_POPS_A_LINE
        assert here.broker.pops._lines == {}
        assert here.broker.pops._ends == {}
        assert here.broker.probed == 0


async def test_receives_that_ask_for_something_else_have_pops_of_their_own(
    autojump_clock: MockClock,
) -> None:
    async with held_pops() as here:
        for number in range(2 * MOST_POPS_A_LINE):
            await here.receive(20, None)
            await here.receive(20, f"kind {number}")
        await trio.sleep(1)
        assert len(here.broker.held) == 4 * MOST_POPS_A_LINE


async def test_pops_of_one_host_leave_room_at_each_broker_for_those_of_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of receives that have ended: the broker holds them until their time is over."""
    monkeypatch.setattr(held_pops_module, "MOST_POPS", 10)
    async with held_pops() as here:
        for number in range(20):
            receiver = await here.receive(20, None)
            receiver.scope.cancel()
            await wait_all_tasks_blocked()
            refused = receiver.error
            assert isinstance(refused, Refused) is (number >= 8)
            assert not isinstance(refused, Refused) or refused.code == Code.TOO_MANY_REQUESTS
        other = await here.receive(20, None, "10.0.0.2")
        here.address = SECOND
        elsewhere = await here.receive(20, None)
        assert [other, elsewhere] == here.waiting()
        await trio.sleep(1)
        assert len(here.broker.held) == 9
        await trio.sleep(30)
        here.address = FIRST
        again = await here.receive(20)
        assert again in here.waiting()
        await trio.sleep(30)
        assert here.broker.pops._shares.keys() == {SECOND}  # that broker never answered


async def test_a_refusal_or_a_lost_connection_is_told_to_each_receive(
    autojump_clock: MockClock,
) -> None:
    """One after the other has its own pop refused, as if none had stood behind others."""
    for outcome in (None, ConnectionClosed("one:10911", "it is gone", outcome_unknown=True)):
        async with held_pops() as here:
            for _ in range(3 * MOST_POPS_A_LINE):
                await here.receive(20)
            await trio.sleep(1)
            for _ in range(3):
                for pop in list(here.broker.held):
                    refused = pop.command.reply(ResponseCode.SYSTEM_BUSY, body=b"refused")
                    here.broker.answer(pop, outcome or refused)
                await trio.sleep(0.1)
            assert not here.waiting()
            told = [one.error if outcome else one.outcome for one in here.all]
            assert told == [outcome or b"refused"] * len(here.all)
            assert here.broker.pops._lines == {}


async def test_a_pop_that_cannot_be_made_ends_its_receive_alone(autojump_clock: MockClock) -> None:
    fault = RemotingError("the pop cannot be made")
    told: list[RemotingError] = []

    def make(_hold_s: float) -> Command:
        raise fault

    async def ask(pops: HeldPops) -> None:
        try:
            await pops.ask(FIRST, QUEUE, "alike", HOST, make, 20, lambda _reply: None)
        except RemotingError as error:
            told.append(error)

    async with held_pops() as here, trio.open_nursery() as nursery:
        for _ in range(MOST_POPS_A_LINE + 4):
            await here.receive(20)
            await trio.sleep(0.01)  # so that the broker holds their pops in this order
        nursery.start_soon(ask, here.broker.pops)
        await wait_all_tasks_blocked()
        for _ in here.all:
            here.broker.send(b"message")
            await trio.sleep(0.1)
        assert told == [fault]
        assert [one.outcome for one in here.all] == [b"message"] * len(here.all)
        assert here.broker.pops._lines == {}


async def test_a_receive_is_served_though_a_younger_one_that_ends_soon_stands_behind_it(
    autojump_clock: MockClock,
) -> None:
    async with held_pops() as here:
        for _ in range(MOST_POPS_A_LINE):
            await here.receive(5.0)
        patient = await here.receive(20.0)
        await here.receive(5.0 + TICK_S / 2)
        await trio.sleep(6)
        here.broker.send(b"message")
        await trio.sleep(0.1)
        assert patient.outcome == b"message"


@pytest.mark.parametrize("seed", seeds(60, 6))
async def test_each_message_goes_once_to_the_oldest_receive_and_none_waits_beside_it(
    seed: int, autojump_clock: MockClock
) -> None:
    random = Random(seed)
    async with held_pops() as here:
        broker, sent = here.broker, 0
        for _ in range(300):
            match random.choice(
                ("receive", "receive", "receive", "send", "cancel", "wait", "lead")
            ):
                case "receive":
                    for _ in range(random.choice((1, 1, 1, 30))):
                        await here.receive(random.choice((1.0, 5.0, 20.0)))
                case "send":
                    waiting = here.waiting()
                    for _ in range(random.choice((1, 1, 5, 40))):
                        broker.send(b"%d" % sent)
                        sent += 1
                    await trio.sleep(0.05)
                    served = [one for one in waiting if one.outcome]
                    if all(one.until > trio.current_time() for one in waiting):
                        assert served == waiting[: len(served)], "a younger one was served before"
                case "cancel" if here.waiting():
                    random.choice(here.waiting()).scope.cancel()
                    await wait_all_tasks_blocked()
                case "wait":
                    await trio.sleep(random.choice((0.01, 0.5, 3.0, 25.0)))
                case "lead" if random.random() < 0.2:
                    here.address = SECOND if here.address == FIRST else FIRST
                    broker.lead(here.address)
                    await wait_all_tasks_blocked()
                    assert not here.waiting()
                case _:
                    continue
            await trio.sleep(0.05)
            soon = trio.current_time() + TICK_S
            if any(one.until > soon for one in here.waiting()):
                assert broker.held, "no pop waits at the broker"
                assert not broker.messages, "a message and a receive wait beside each other"
            assert len(broker.held) <= MOST_POPS_A_LINE
        broker.messages.clear()
        await trio.sleep(30)
        for one in here.all:
            assert one.ended_at is not None
            assert one.ended_at <= one.until + 2 * TICK_S
        given = [one.outcome for one in here.all if one.outcome]
        assert len(given) == len(set(given)), "a message was given twice"
        assert not set(given) & set(here.late)
        assert broker.pops._ends == {}
        assert broker.probed == 0


async def test_with_access_control_every_receive_proves_its_user_to_the_broker(
    autojump_clock: MockClock,
) -> None:
    """Otherwise one without a proof could be given what another one has asked for."""
    for is_user, popped in ((True, 3 * MOST_POPS_A_LINE), (False, MOST_POPS_A_LINE)):
        async with scripted_proxy(is_user=is_user) as here, trio.open_nursery() as nursery:
            here.brokers.topic(QUEUE.topic)
            here.brokers.slow_s[RequestCode.POP_MESSAGE] = 20.0
            client = await here.client()
            for _ in range(3 * MOST_POPS_A_LINE):
                nursery.start_soon(client.receive, receiving(QUEUE.topic, wait_s=20))
            await trio.sleep(1)
            assert len(here.brokers.of(RequestCode.POP_MESSAGE)) == popped
            nursery.cancel_scope.cancel()


@given(st.integers(-(1 << 40), 1 << 40), st.integers(-999_999_999, 999_999_999))
def test_a_duration_has_the_milliseconds_that_protobuf_says(seconds: int, nanos: int) -> None:
    duration = Duration(seconds=seconds, nanos=nanos)
    try:
        expected = duration.ToMilliseconds()
    except ValueError:
        return  # no duration has signs that differ, or so many seconds
    assert receives._milliseconds(duration) == expected
