"""Which popped messages a consumer renews, and who is told of room for further ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from dledger_mq.held_messages import HeldMessages
from dledger_mq.popped import Popped


async def renewals(*, is_acknowledged: bool) -> tuple[int, bool]:
    """How often a message of two seconds is renewed within five; and whether it is given up."""
    asked: list[float] = []

    class Held(HeldMessages):
        async def _ask(self, popped: Popped, seconds: float) -> bool:
            asked.append(trio.current_time())
            popped.deadline = trio.current_time() + seconds
            return True

    async with trio.open_nursery() as nursery:
        held = Held(
            *(cast(Any, None), "g", 10, 2.0, 60.0, nursery),
            *(lambda _popped: None, lambda _popped: None),
        )
        now = trio.current_time()
        message = cast(Any, SimpleNamespace(message_id="m", queue="q"))
        popped = Popped(message, 0, 1, 2000, 0, "0", now + 2, now)
        popped.wants_acknowledgement = is_acknowledged
        held.add(popped)
        nursery.start_soon(held.renew_for_ever)
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
        *(cast(Any, None), "g", most, 2.0, 60.0, nursery),
        *(lambda _popped: None, lambda _popped: None),
    )


def a_message(number: int) -> Popped:
    message = cast(Any, SimpleNamespace(message_id=f"m{number}", queue="q"))
    return Popped(message, 0, number, 2000, 0, "0", trio.current_time() + 2, 0.0)


@pytest.mark.parametrize("way", ["settled", "promised and not used"])
async def test_all_queues_that_wait_for_room_pop_again_when_there_is_some(
    way: str, autojump_clock: MockClock
) -> None:
    queues, most = 5, 4
    going_on: list[int] = []

    async def pop(held: HeldMessages, queue: int) -> None:
        promised = await held.promise_room(1)
        going_on.append(queue)
        held.keep_promise(promised)

    async with trio.open_nursery() as nursery:
        held = held_by(nursery, most)
        messages = [a_message(number) for number in range(most)]
        if way == "settled":
            for message in messages:
                held.add(message)
        else:
            assert await held.promise_room(most) == most
        for queue in range(queues):
            nursery.start_soon(pop, held, queue)
        await trio.testing.wait_all_tasks_blocked()
        assert going_on == []
        if way == "settled":
            held.settle(messages[0])
        else:
            held.keep_promise(most)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(going_on) == list(range(queues))
        nursery.cancel_scope.cancel()
