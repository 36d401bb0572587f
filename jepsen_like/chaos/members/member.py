"""One member of a run, seen from outside: its process, its files, its orders, its status."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from dledger.declared_error import DeclaredError
from jepsen_like.chaos.orders import lines_of, said_by

# A member that was asked to stop closes its files in this time, or is killed.
STOP_TIMEOUT_S = 10.0
ORDER_TIMEOUT_S = 5.0
LOG_END_BYTES = 8192
LOOK_S = 0.02


class OrderFailed(DeclaredError):
    """A member did not carry out an order: it does not run, is too slow, or refuses it."""

    problem: str


@dataclass
class Member:
    """A member's process, which comes and goes.

    Args:
        name: its node id, and its host in the network.
        command: starts it.
        log: where its standard error goes, the output of all its processes.
        data: the folder that holds its data.
    """

    name: str
    command: Sequence[str]
    log: Path
    data: Path
    status: dict[str, Any] = field(default_factory=dict)
    process: trio.Process | None = None
    frozen: bool = False
    # Whether the run causes its next end.
    end_expected: bool = False
    holds: int = 0
    incarnations: int = 0
    # Where the log of its present process begins.
    log_begin: int = 0
    # Whether its disk was broken again: the remedies against the last fault may be tried again.
    broken_anew: bool = False
    # A member that left the group for good is not started again.
    retired: bool = False
    # Starting takes a while on a busy machine: a signal that is to end it waits for the process.
    is_starting: bool = False
    _early_signal: signal.Signals | None = None
    _waiting: dict[int, _Answer] = field(default_factory=dict)
    _orders: int = 0
    _turn: trio.Lock = field(default_factory=trio.Lock)

    @property
    def folder(self) -> Path:
        """The folder of the node inside of its data."""
        return self.data / f"dledger-{self.name}"

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int | None:
        """The number of its process, if it runs."""
        return self.process.pid if self.process is not None and self.runs else None

    # --- the process ------------------------------------------------------------------------

    async def run_once(self) -> int:
        """Start the process and wait for its end; return its exit code.

        If cancelled, stop the process in order, and kill it if that takes too long.
        """
        self.status, self.end_expected, self.frozen = {}, False, False
        self.incarnations += 1
        self.is_starting = True
        with self.log.open("ab") as log:
            self.log_begin = log.tell()
            # A process group of its own: Ctrl-C in a terminal is for the run, which then stops all.
            process = await trio.lowlevel.open_process(
                list(self.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        self.process, self.is_starting = process, False
        if self._early_signal is not None:
            process.send_signal(self._early_signal)
            self._early_signal = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear, process)
                code = await process.wait()
                nursery.cancel_scope.cancel()
            return code
        finally:
            if process.returncode is None:
                await self._end(process)
            self.status = {}
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await trio.aclose_forcefully(pipe)

    async def _end(self, process: trio.Process) -> None:
        self.end_expected = True
        with trio.CancelScope(shield=True):
            self.resume()
            process.send_signal(signal.SIGTERM)
            with trio.move_on_after(STOP_TIMEOUT_S):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _hear(self, process: trio.Process) -> None:
        assert process.stdout is not None
        async with aclosing(lines_of(process.stdout)) as lines:
            async for line in lines:
                said = said_by(self.name, line)
                if "status" in said:
                    self.status = said["status"]
                elif (waiting := self._waiting.pop(said["id"], None)) is not None:
                    waiting.said = said
                    waiting.arrived.set()

    # --- signals ------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill -9, if it runs."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it closes its files and ends, if it runs."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_starting:
            self.end_expected = True
            self._early_signal = number
        elif self.process is not None and self.runs:
            self.end_expected = True
            self.process.send_signal(number)

    def hang_up(self) -> None:
        """SIGHUP: it reads its files again, if it runs and has begun."""
        if self.process is not None and self.runs and self.status:
            self.process.send_signal(signal.SIGHUP)

    def freeze(self) -> None:
        """SIGSTOP: it does nothing until `resume`."""
        if self.process is not None and self.runs:
            self.frozen = True
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, if it is frozen."""
        if self.process is not None and self.runs and self.frozen:
            self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    # --- held down ----------------------------------------------------------------------------

    @contextmanager
    def held_down(self) -> Iterator[None]:
        """Keep it from being started again, during a block."""
        self.holds += 1
        try:
            yield
        finally:
            self.holds -= 1

    async def ended(self) -> None:
        """Wait until its process is gone, also one that is being started."""
        while self.is_starting:
            await trio.sleep(LOOK_S)
        while self.runs:
            assert self.process is not None
            await self.process.wait()

    def log_end(self) -> str:
        """The end of the log of its last process."""
        with self.log.open("rb") as log:
            log.seek(max(self.log_begin, self.log.stat().st_size - LOG_END_BYTES))
            return log.read().decode(errors="replace")

    # --- orders -------------------------------------------------------------------------------

    async def order(self, do: str, timeout_s: float = ORDER_TIMEOUT_S, **fields: object) -> Any:
        """Have it do something; return its answer. Raises OrderFailed."""
        process = self.process
        if process is None or not self.runs or process.stdin is None:
            raise OrderFailed(f"{self.name} does not run")
        self._orders += 1
        number = self._orders
        waiting = self._waiting[number] = _Answer()
        try:
            with trio.fail_after(timeout_s):
                line = json.dumps({"id": number, "do": do, **fields}) + "\n"
                async with self._turn:
                    await process.stdin.send_all(line.encode())
                await waiting.arrived.wait()
        except trio.TooSlowError:
            raise OrderFailed(f"{self.name} did not {do} within {timeout_s:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise OrderFailed(f"{self.name} ended") from None
        finally:
            self._waiting.pop(number, None)
        if "error" in waiting.said:
            raise OrderFailed(f"{self.name}: {waiting.said['error']}")
        return waiting.said["value"]


@dataclass
class _Answer:
    """The answer that an order waits for."""

    arrived: trio.Event = field(default_factory=trio.Event)
    said: dict[str, Any] = field(default_factory=dict)
