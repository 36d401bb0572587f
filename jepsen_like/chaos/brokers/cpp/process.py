"""The process of one client of C++, seen from the clients of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import trio

from dledger.declared_error import DeclaredError
from jepsen_like.chaos.orders import lines_of
from jepsen_like.chaos.process_end import end_process

Role = Literal["produce", "consume"]

MODULE: Final = "jepsen_like.chaos.brokers.cpp"
READY_TIMEOUT_S: Final = 60.0
# A killed process is gone in milliseconds.
END_TIMEOUT_S: Final = 5.0


class CppEnded(DeclaredError):
    """A client of C++ crashed, or hangs. Its text says which."""

    problem: str


class CppProcess:
    """A client that reads and writes lines of JSON: see `__main__`."""

    def __init__(self, role: Role, process: trio.Process, lines: AsyncIterator[str]) -> None:
        self._role = role
        self._process = process
        self._lines = lines
        self._turn = trio.Lock()

    async def say(self, **fields: object) -> None:
        """Write a line; several tasks may. Raises CppEnded."""
        assert self._process.stdin is not None
        try:
            async with self._turn:
                await self._process.stdin.send_all(json.dumps(fields).encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise await self._ended() from None

    async def hear(self) -> dict[str, Any]:
        """Return the next line. Raises CppEnded."""
        try:
            said: dict[str, Any] = json.loads(await anext(self._lines))
        except StopAsyncIteration:
            raise await self._ended() from None
        return said

    async def hear_within(self, timeout_s: float) -> dict[str, Any]:
        """Return the next line. Raises CppEnded, also if none comes in time."""
        with trio.move_on_after(timeout_s):
            return await self.hear()
        raise CppEnded(f"a client of C++ ({self._role}) said nothing for {timeout_s:g} s")

    async def _ended(self) -> CppEnded:
        with trio.move_on_after(END_TIMEOUT_S):
            await self._process.wait()
        return CppEnded(f"a client of C++ ({self._role}) ended with {self._process.returncode}")


@asynccontextmanager
async def cpp_process(
    role: Role, nameserver: str, topic: str, group: str, home: Path
) -> AsyncIterator[CppProcess]:
    """Run a client during a block; kill it in the end. Raises CppEnded if it does not start."""
    process = await trio.lowlevel.open_process(
        ["env", f"HOME={home}", sys.executable, "-m", MODULE, role, nameserver, topic, group],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with aclosing(lines_of(process.stdout)) as lines:
            client = CppProcess(role, process, lines)
            await client.hear_within(READY_TIMEOUT_S)
            yield client
    finally:
        await end_process(process)
