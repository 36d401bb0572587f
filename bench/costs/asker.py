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
    """Takes replies as a connection does: each becomes a frame. Implements `Origin`.

    Args:
        number: makes its address one of its own.

    Attributes:
        peer: its address.
        replies: how many came.
        last: the newest.
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
        """Make a frame of a reply."""
        encode_command(command)
        self.replies += 1
        self.last = command
        self._replied.set()

    def send_all(self, commands: Sequence[Command]) -> None:
        """As `send`."""
        for command in commands:
            self.send(command)

    def gather(self) -> None:
        """Nothing is written."""

    def write_gathered(self) -> None:
        """Nothing is written."""

    def when_taken(self, then: Callable[[], None]) -> None:
        """It takes all at once."""
        then()

    def go_on(self, steps: Iterator[object]) -> None:
        """Take each step by itself, so that each is seen by itself."""
        trio.lowlevel.spawn_system_task(_take, steps)

    def send_oneway(self, command: Command) -> None:
        """Make a frame of a notice."""
        encode_command(command)

    def request(self, command: Command, settle: Settle, timeout_s: float) -> int | None:
        """Make a frame of a request, which is not answered."""
        encode_command(command)
        settle(ConnectionClosed(str(self.peer), "it answers nothing", outcome_unknown=False))
        return None

    async def until(self, replies: int) -> None:
        """Wait until so many replies have come."""
        while self.replies < replies:
            self._replied = trio.Event()
            await self._replied.wait()


async def _take(steps: Iterator[object]) -> None:
    for _step in steps:
        await trio.lowlevel.checkpoint()
