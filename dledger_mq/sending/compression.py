"""Compresses bodies without blocking the loop, in the order of the messages of each topic."""

import zlib
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from dledger.wake_up import WakeUp
from dledger_mq.connection.side_work import SideWork
from dledger_mq.sending.sending import Sending
from remoting.message.record import COMPRESSED_FLAG

# RocketMQ's zlib level: half the time of 9 for nearly its size.
COMPRESSION_LEVEL: Final = 5

# The bytes that are compressed in the loop in one turn, which takes about 1 ms: a single message
# need not wait for a thread, which takes a tenth of that. More bytes go to a thread.
TURN_BYTES: Final = 32 * 1024

# The bytes that a thread compresses at a time, in some 30 ms, unless one body is longer. Then these
# messages are sent, and another topic has its turn.
STEP_BYTES: Final = 1024 * 1024


class Compression:
    """The messages of one producer that wait for their compression, or for that of others before
    them.

    The window bounds their number. Messages of one topic leave in the order in which they came, and
    topics take turns. `on_done` is called with each message that had to wait, and the bytes that
    its compression saves.
    """

    def __init__(self, side_work: SideWork, on_done: Callable[[Sending, int], None]) -> None:
        self._side_work = side_work
        self._on_done = on_done
        self._waiting: dict[str, deque[Sending]] = {}  # by topic
        self._left_bytes = TURN_BYTES
        self._wake = WakeUp()

    def passes(self, sending: Sending) -> bool:
        """Return whether a message can go on now, compressed if needed; else see `on_done`."""
        if self._waiting and (waiting := self._waiting.get(sending.topic)) is not None:
            waiting.append(sending)
            return False
        if not sending.to_compress or self._is_quick(sending):
            return True
        self._waiting[sending.topic] = deque((sending,))
        return False

    async def alone(self, sending: Sending) -> None:
        """Compress a message that keeps no order with others."""
        if sending.to_compress and not self._is_quick(sending):
            (body,) = await self._side_work.run(_compressed, [sending.body])
            sending.set_compressed(body, COMPRESSED_FLAG)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._left_bytes = TURN_BYTES
            while self._waiting:
                for topic in list(self._waiting):
                    await self._step(topic)

    def _is_quick(self, sending: Sending) -> bool:
        """Compress a message here if this turn of the loop has bytes left."""
        self._wake.set()
        if len(sending.body) > self._left_bytes:
            return False
        self._left_bytes -= len(sending.body)
        (body,) = _compressed([sending.body])
        sending.set_compressed(body, COMPRESSED_FLAG)
        return True

    async def _step(self, topic: str) -> None:
        """Let the first messages of a topic go on."""
        waiting = self._waiting[topic]
        first, left_bytes = 0, STEP_BYTES
        for sending in waiting:
            size = len(sending.body) if sending.to_compress else 0
            if first and size > left_bytes:
                break
            first, left_bytes = first + 1, left_bytes - size
        bodies = [one.body for one in islice(waiting, first) if one.to_compress]
        if bodies:
            bodies = await self._side_work.run(_compressed, bodies)
        bodies.reverse()
        for _ in range(first):
            sending, saved_bytes = waiting[0], 0
            if sending.to_compress:
                saved_bytes = sending.set_compressed(bodies.pop(), COMPRESSED_FLAG)
            self._on_done(sending, saved_bytes)  # messages that come meanwhile go behind it
            waiting.popleft()
        if not waiting:
            del self._waiting[topic]


def _compressed(bodies: list[bytes]) -> list[bytes]:
    return [zlib.compress(body, COMPRESSION_LEVEL) for body in bodies]
