"""A client of a broker in the same process, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import trio

from remoting.net.address import Address
from remoting.net.errors import ConnectionClosed
from remoting.net.request_table import Settle
from remoting.wire.command import Command
from remoting.wire.frame import encode_command


class Asker:
    """A connection that encodes replies and drops them. Implements `Origin`.

    Args:
        number: makes its address unique.

    Attributes:
        replies: number of replies.
        last: the newest reply.
    """

    is_closed = False
    is_behind = False
    is_turn_over = False

    def __init__(self, number: int = 0) -> None:
        self.peer = Address(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 1)
        self.replies = 0
        self.last: Command | None = None
        self._replied = trio.Event()

    def send(self, command: Command) -> None:
        encode_command(command)
        self.replies += 1
        self.last = command
        self._replied.set()

    def send_all(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self.send(command)

    def gather(self) -> None: ...

    def write_gathered(self) -> None: ...

    def set_aside(self, command: Command) -> None: ...

    def when_taken(self, then: Callable[[], None]) -> None:
        then()

    def go_on(self, steps: Iterator[object]) -> None:
        """Run each step in a step of the loop of its own, so that each is measured alone."""
        trio.lowlevel.spawn_system_task(_take, steps)

    def send_oneway(self, command: Command) -> None:
        encode_command(command)

    def request(self, command: Command, settle: Settle, timeout_s: float) -> int | None:
        """Encode a request, and fail it at once."""
        encode_command(command)
        settle(ConnectionClosed(str(self.peer), "it answers nothing", outcome_unknown=False))
        return None

    async def until(self, replies: int) -> None:
        while self.replies < replies:
            self._replied = trio.Event()
            await self._replied.wait()


async def _take(steps: Iterator[object]) -> None:
    for _step in steps:
        await trio.lowlevel.checkpoint()
