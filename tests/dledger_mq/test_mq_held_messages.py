"""Which popped messages a consumer renews."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import trio
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
