"""How long clients of ours are not served when a leader is killed."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from bench.one_run import RunFailed
from dledger_mq import Message, MessagingError, Producer

_SENDERS = 16
_TOPIC = "Failover"
_PAUSE_S = 0.005

# Before the leader is killed.
_CALM_S = 2.0


def outage_ms(nameserver: str, kill: Callable[[], object], patience_s: float) -> float:
    """Send while `kill` kills the leader; return the outage. Raises RunFailed.

    It lasts from just before the kill to the first message whose sending began after the kill.
    """
    return trio.run(_outage_ms, nameserver, kill, patience_s)


async def _outage_ms(nameserver: str, kill: Callable[[], object], patience_s: float) -> float:
    killed_at, first_after = float("inf"), float("inf")
    stored = 0
    served = trio.Event()

    async def send(producer: Producer) -> None:
        nonlocal first_after, stored
        while True:
            began = time.monotonic()
            try:
                await producer.send(Message(_TOPIC, bytes(256)))
            except MessagingError:
                await trio.sleep(_PAUSE_S)
                continue
            stored += 1
            if began >= killed_at and not served.is_set():
                first_after = time.monotonic()
                served.set()

    async with Producer("bench", nameservers=nameserver) as producer, trio.open_nursery() as tasks:
        for _ in range(_SENDERS):
            tasks.start_soon(send, producer)
        await trio.sleep(_CALM_S)
        if not stored:
            raise RunFailed("nothing was stored before the leader was killed")
        began = time.monotonic()
        await trio.to_thread.run_sync(kill)
        killed_at = time.monotonic()
        with trio.move_on_after(patience_s):
            await served.wait()
        tasks.cancel_scope.cancel()
    if not served.is_set():
        raise RunFailed(f"nothing was stored for {patience_s:g} s after the leader was killed")
    return (first_after - began) * 1000
