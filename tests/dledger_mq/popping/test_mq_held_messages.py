"""Which popped messages a consumer renews, and who is told of room for further ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from dledger_mq.consuming.listener_calls import ListenerCalls
from dledger_mq.listener_watch import ListenerWatch
from dledger_mq.message import ConsumeResult
from dledger_mq.popping import pop_acknowledging
from dledger_mq.popping.held_messages import HeldMessages
from dledger_mq.popping.pop_acknowledging import PopAcknowledging
from dledger_mq.popping.pop_listening import PopListening
from dledger_mq.popping.pop_options import PopOptions
from dledger_mq.popping.popped import Popped
from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command


def with_room_for(most: int) -> PopOptions:
    return PopOptions(max_held_messages=most, invisible_s=2.0, longest_call_s=60.0)


async def renewals(*, is_acknowledged: bool) -> tuple[int, bool]:
    """How often a message of two seconds is renewed within five; and whether it is given up."""
    asked: list[float] = []

    class Held(HeldMessages):
        async def _ask(self, popped: Popped, hide_s: float) -> bool:
            asked.append(trio.current_time())
            popped.deadline = trio.current_time() + hide_s
            return True

    async with trio.open_nursery() as nursery:
        held = Held(
            *(cast(Any, None), "g", with_room_for(10), nursery),
            *(lambda _popped: None, lambda _popped: None),
        )
        now = trio.current_time()
        message = cast(Any, SimpleNamespace(message_id="m", queue="q"))
        popped = Popped(message, 0, 1, 2000, 0, "0", now + 2, now)
        popped.wants_acknowledgement = is_acknowledged
        held.add(popped)
        nursery.start_soon(held.renew_forever)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    return len(asked), popped.is_settled


async def test_a_message_at_work_is_renewed_at_half_of_its_time(
    autojump_clock: MockClock,
) -> None:
    count, is_settled = await renewals(is_acknowledged=False)
    assert count in (4, 5)
    assert not is_settled


async def test_a_message_is_not_renewed_while_its_acknowledgement_is_on_its_way(
    autojump_clock: MockClock,
) -> None:
    assert await renewals(is_acknowledged=True) == (0, True)


def held_by(nursery: trio.Nursery, most: int) -> HeldMessages:
    return HeldMessages(
        *(cast(Any, None), "g", with_room_for(most), nursery),
        *(lambda _popped: None, lambda _popped: None),
    )


def a_message(number: int) -> Popped:
    message = cast(Any, SimpleNamespace(message_id=f"m{number}", queue="q"))
    return Popped(message, 0, number, 2000, 0, "0", trio.current_time() + 2, 0.0)


@pytest.mark.parametrize("way", ["settled", "reserved and not used"])
async def test_all_queues_that_wait_for_room_pop_again_when_there_is_some(
    way: str, autojump_clock: MockClock
) -> None:
    queues, most = 5, 4
    going_on: list[int] = []

    async def pop(held: HeldMessages, queue: int) -> None:
        reserved = await held.reserve_room(1)
        going_on.append(queue)
        held.end_reservation(reserved)

    async with trio.open_nursery() as nursery:
        held = held_by(nursery, most)
        messages = [a_message(number) for number in range(most)]
        if way == "settled":
            for message in messages:
                held.add(message)
        else:
            assert await held.reserve_room(most) == most
        for queue in range(queues):
            nursery.start_soon(pop, held, queue)
        await trio.testing.wait_all_tasks_blocked()
        assert going_on == []
        if way == "settled":
            held.settle(messages[0])
        else:
            held.end_reservation(most)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(going_on) == list(range(queues))
        nursery.cancel_scope.cancel()


# A message of two seconds is renewed after one, and that takes half a second. One that could not be
# renewed is given up then.
@pytest.mark.parametrize(
    ("consumed_at_s", "is_renewed"),
    [(0.9, True), (0.9, False), (1.1, True), (1.1, False), (1.4, True), (1.4, False), (1.7, True)],
)
async def test_a_message_is_acknowledged_once_whether_or_not_it_is_just_being_renewed(
    consumed_at_s: float,
    is_renewed: bool,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, new_ms, count = trio.current_time(), 7, 3
    acknowledged: list[tuple[Popped, int]] = []

    class Held(HeldMessages):
        async def _ask_in_time(self, popped: Popped, hide_s: float) -> bool:
            await trio.sleep(0.5)
            if is_renewed:
                popped.popped_ms, popped.deadline = new_ms, begun + 1 + hide_s
            return is_renewed

    class Acknowledging(PopAcknowledging):
        def _command(self, these: list[Popped]) -> Command:
            acknowledged.extend((one, one.popped_ms) for one in these)
            return Command(0)

    async def taken(*_arguments: object, **_more: object) -> Command:
        await trio.lowlevel.checkpoint()
        return Command(ResponseCode.SUCCESS)

    def settle(popped: Popped) -> None:
        held.settle(popped)

    monkeypatch.setattr(pop_acknowledging, "call_master", taken)
    async with trio.open_nursery() as nursery:
        none = cast(Any, None)
        acknowledging = Acknowledging(none, "g", nursery, settle)
        held = Held(none, "g", with_room_for(10), nursery, lambda _popped: None, acknowledging.add)
        queue = SimpleNamespace(broker_name="b")
        message = cast(Any, SimpleNamespace(message_id="m", queue=queue))
        messages = [Popped(message, 0, 1, 2000, 0, "0", begun + 2, begun) for _ in range(count)]
        for one in messages:
            held.add(one)
        nursery.start_soon(held.renew_forever)
        await trio.sleep_until(begun + consumed_at_s)
        for one in messages:
            acknowledging.add(one)
        await trio.sleep_until(begun + 1.95)
        nursery.cancel_scope.cancel()
    handle = new_ms if is_renewed and consumed_at_s > 1 else 1
    assert dict(acknowledged) == dict.fromkeys(messages, handle)
    assert len(acknowledged) == count
    assert all(one.is_settled for one in messages)


@pytest.mark.parametrize(("failures", "pause_s"), [(-20, 7.0), (0, 7.0), (1, 9.0), (5, 9.0)])
async def test_a_message_that_failed_waits_by_the_number_of_its_failures(
    failures: int, pause_s: float
) -> None:
    hidden: list[float] = []

    class Held(HeldMessages):
        async def hide(self, popped: Popped, hide_s: float) -> bool:
            hidden.append(hide_s)
            return True

    none = cast(Any, None)
    options = PopOptions(retry_s=(7.0, 9.0))

    async def failing(_messages: object) -> ConsumeResult:
        return ConsumeResult.RETRY

    calls = ListenerCalls("g", failing, ListenerWatch(), 10.0)
    listening = PopListening(calls, options, is_ordered=False)
    message = ReceivedMessage(MessageQueue("T", "b", 0), 0, b"x", reconsume_times=failures)
    async with trio.open_nursery() as nursery:
        held = Held(none, "g", options, nursery, none, none)
        nursery.start_soon(listening.work, held, none)
        listening.offer([Popped(message, 0, 1, 2000, 0, "0", 1.0, 0.0)])
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert hidden == [pause_s]
