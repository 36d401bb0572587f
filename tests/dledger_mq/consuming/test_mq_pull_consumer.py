"""A pull consumer reads what it names, at whichever broker leads."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from dledger_mq import MessageQueue, PullConsumer, PullStatus
from remoting.wire.codes import RequestCode
from tests.dledger_mq.scripted_cluster import (
    GROUP_NAME,
    ScriptedBroker,
    Store,
    scripted,
)


@pytest.mark.feature("F51")
@pytest.mark.parametrize("hold_s", [0.0, 20.0])
async def test_a_pull_at_a_leader_that_freezes_is_answered_by_the_next_one(
    clock: MockClock, hold_s: float
) -> None:
    store, queue = Store(), MessageQueue("T", GROUP_NAME, 0)
    frozen, elected = ScriptedBroker(store), ScriptedBroker(store)
    async with (
        scripted(frozen, elected) as names,
        PullConsumer("g", nameservers=names.address) as consumer,
    ):
        await consumer.first_offset(queue)
        for code in frozen.answers:
            frozen.answers[code] = lambda _connection, _command: None
        names.set_route("T", elected.address)
        store.put("T", 0, b"x")
        began = trio.current_time()
        found = await consumer.pull(queue, 0, hold_s=hold_s)
        took_s = trio.current_time() - began
    assert (found.status, [one.body for one in found.messages]) == (PullStatus.FOUND, [b"x"])
    assert took_s < 4
    assert len(frozen.asked(RequestCode.PULL_MESSAGE)) == 1
