"""The process of the clients, seen from the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.orders import said_by
from jepsen_like.chaos.side_process import SideProcess


class ClientProcess:
    """Gives orders to the clients, and takes their counts."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.process = SideProcess("clients", command, log, self._hear)
        self.counts: dict[str, int] = {}
        self._started = trio.Event()
        self._ended = trio.Event()
        self._final: list[str] | None = None
        self._final_made = trio.Event()
        self._changed: dict[str, int] = {}
        self._change_heard = trio.lowlevel.ParkingLot()

    def _hear(self, line: str) -> None:
        said = said_by("the process of the clients", line)
        if "counts" in said:
            self.counts = said["counts"]
            self._started.set()
        if "ended" in said:
            self._ended.set()
        if "changed" in said:
            self._changed[said["changed"]] = self._changed.get(said["changed"], 0) + 1
            self._change_heard.unpark_all()
        if "final" in said:
            self._final = said["final"]
            self._final_made.set()

    async def wait_started(self, timeout_s: float) -> None:
        """Wait until the clients make calls. Raises HarnessFailed if they take too long."""
        with trio.move_on_after(timeout_s):
            await self._started.wait()
        if not self._started.is_set():
            raise HarnessFailed(f"the clients had not started after {timeout_s:g} s")

    async def change(self, order: str, timeout_s: float) -> bool:
        """Have something changed; return whether that was done in time."""
        done = self._changed.get(order, 0)
        await self.process.say(order)
        with trio.move_on_after(timeout_s):
            while self._changed.get(order, 0) == done:
                await self._change_heard.park()
        return self._changed.get(order, 0) > done

    async def end_calls(self, timeout_s: float) -> None:
        await self.process.say("end")
        with trio.move_on_after(timeout_s):
            await self._ended.wait()

    async def make_final_calls(self, timeout_s: float) -> list[str]:
        """Have the last calls made; return those that no member answered."""
        await self.process.say("final")
        with trio.move_on_after(timeout_s):
            await self._final_made.wait()
        if self._final is None:
            return [f"the last reads were not answered within {timeout_s:g} s"]
        return self._final


@asynccontextmanager
async def client_process(command: Sequence[str], log: Path) -> AsyncIterator[ClientProcess]:
    """Run the process of the clients during a block. Raises HarnessFailed if it ends by itself."""
    clients = ClientProcess(command, log)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.process.run)
        yield clients
        nursery.cancel_scope.cancel()
