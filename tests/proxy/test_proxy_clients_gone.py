"""What becomes of the messages that a proxy renews when their client is gone."""

from typing import Any, cast

import trio
from trio.testing import MockClock

from proxy.brokers.brokers import Brokers
from proxy.clients.sessions import EXPIRE_S, Sessions
from proxy.receiving.receipt_handle import ReceiptHandle
from proxy.receiving.renewals import Renewals
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

INVISIBLE_MS = 60_000


class AskedBrokers:
    """Notes when, and for how long, messages are asked to be invisible."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []

    async def ask(self, caller: object, queue: object, command: Command, what: str) -> Command:
        assert command.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        invisible_ms = command.integer("invisibleTime")
        self.asked.append((trio.current_time(), invisible_ms))
        fields = {"popTime": "2", "invisibleTime": str(invisible_ms), "reviveQid": "0"}
        return Command(0, fields)


def begun(nursery: trio.Nursery) -> tuple[AskedBrokers, Sessions, Renewals]:
    brokers, sessions = AskedBrokers(), Sessions()
    renewals = Renewals(cast("Brokers", cast("Any", brokers)), sessions)
    sessions.heard("client")
    nursery.start_soon(sessions.expire)
    nursery.start_soon(renewals.run)
    renewals.add("client", "g", "t", ReceiptHandle(0, 1, INVISIBLE_MS, 0, "0", "broker-a", 0, 0, 0))
    return brokers, sessions, renewals


async def test_others_get_the_messages_of_a_silent_client_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    brokers, _, renewals = begun(nursery)
    began_s = trio.current_time()
    await trio.sleep(EXPIRE_S + 10)
    # Renewed for 60 s, then for 180 s, before anyone knows that the client is gone.
    assert [invisible_ms for _, invisible_ms in brokers.asked] == [60_000, 180_000, 1_000]
    assert brokers.asked[-1][0] - began_s < EXPIRE_S + 10
    await trio.sleep(1000)
    assert len(brokers.asked) == 3
    assert len(renewals) == 0


async def test_others_get_the_messages_of_a_client_that_leaves(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    brokers, sessions, renewals = begun(nursery)
    sessions.end("client")
    await trio.sleep(3)
    assert [invisible_ms for _, invisible_ms in brokers.asked] == [1_000]
    assert len(renewals) == 0


async def test_clients_keep_their_messages_when_the_proxy_ends(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    brokers, sessions, _ = begun(nursery)
    sessions.end_all()
    await trio.sleep(3)
    assert brokers.asked == []
