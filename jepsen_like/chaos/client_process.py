"""The process of the clients, seen from the run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from jepsen_like.chaos.members.control import lines_of

STOP_TIMEOUT_S = 10.0


class HarnessFailed(Exception):
    """The run itself went wrong: its text says how. Nothing is known of the system."""


class ClientProcess:
    """Gives orders to the clients, and hears what they count."""

    def __init__(self, process: trio.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.counts: dict[str, int] = {}
        self._ended = trio.Event()
        self._final: list[str] | None = None
        self._final_made = trio.Event()

    async def hear(self) -> None:
        """Hear what the clients say, until they end. Raises HarnessFailed if they end early."""
        assert self._process.stdout is not None
        async for line in lines_of(self._process.stdout):
            said: dict[str, Any] = json.loads(line)
            if "counts" in said:
                self.counts = said["counts"]
            if "ended" in said:
                self._ended.set()
            if "final" in said:
                self._final = said["final"]
                self._final_made.set()
        lines = self._log.read_text(errors="replace").splitlines()
        raise HarnessFailed(f"the clients ended: {lines[-1] if lines else 'they said nothing'}")

    async def end_calls(self, timeout_s: float) -> None:
        """Have the clients finish their last calls."""
        await self._say("end")
        with trio.move_on_after(timeout_s):
            await self._ended.wait()

    async def make_final_calls(self, timeout_s: float) -> list[str]:
        """Have the last calls made; return those that no member answered."""
        await self._say("final")
        with trio.move_on_after(timeout_s):
            await self._final_made.wait()
        if self._final is None:
            return [f"the last reads were not answered within {timeout_s:g} s"]
        return self._final

    async def _say(self, order: str) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(f"{order}\n".encode())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise HarnessFailed("the clients have ended") from None


@asynccontextmanager
async def client_process(command: Sequence[str], log: Path) -> AsyncIterator[ClientProcess]:
    """Run the process of the clients during a block."""
    with log.open("ab") as sink:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            process_group=0,
        )
    try:
        async with trio.open_nursery() as nursery:
            clients = ClientProcess(process, log)
            nursery.start_soon(clients.hear)
            yield clients
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await trio.aclose_forcefully(pipe)
            with trio.move_on_after(STOP_TIMEOUT_S):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
