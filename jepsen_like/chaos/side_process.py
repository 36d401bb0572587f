"""A process beside the members of a run, such as the name server or the clients."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
import trio.lowlevel

from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.orders import lines_of
from jepsen_like.chaos.process_end import end_process

STOP_TIMEOUT_S = 10.0
LOOK_S = 0.05
FRAME = " |+-"


@dataclass
class SideProcess:
    """A process that comes and goes as the run wants; it ends with its standard input.

    Its standard error goes to `log`, and its output unless `hear` takes that, line by line.
    """

    name: str
    command: Sequence[str]
    log: Path
    hear: Callable[[str], None] | None = None
    _process: trio.Process | None = None
    _frozen: bool = False
    _end_expected: bool = False
    _holds: int = 0
    _log_begin: int = 0

    async def run(self) -> None:
        """Run it, and start it again when the run has ended it. Cancelled, stop it.

        Raises HarnessFailed if it ends by itself.
        """
        while True:
            await self._run_once()
            if not self._end_expected:
                said = last_words(self.log.read_text(errors="replace"))
                raise HarnessFailed(f"the {self.name} ended: {said}")
            while self._holds:
                await trio.sleep(LOOK_S)

    async def _run_once(self) -> None:
        self._end_expected = False
        with self.log.open("ab") as log:
            self._log_begin = log.tell()
            process = await trio.lowlevel.open_process(
                list(self.command),
                stdin=subprocess.PIPE,
                stdout=log if self.hear is None else subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        self._process = process
        try:
            if self.hear is not None and process.stdout is not None:
                async with aclosing(lines_of(process.stdout)) as lines:
                    async for line in lines:
                        self.hear(line)
            await process.wait()
        finally:
            self._process = None
            self._resume(process)
            await end_process(process, STOP_TIMEOUT_S)

    async def say(self, line: str) -> None:
        """Write a line to its standard input, once it runs."""
        await self.started()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            await process.stdin.send_all(f"{line}\n".encode())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise HarnessFailed(f"the {self.name} has ended") from None

    # --- what a nemesis does --------------------------------------------------------------------

    async def started(self) -> None:
        while self._process is None:
            await trio.sleep(LOOK_S)

    def kill(self) -> None:
        """Kill -9, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._end_expected = True
            self._process.kill()

    @contextmanager
    def held_down(self) -> Iterator[None]:
        """Keep it from being started again, during a block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    async def ended(self) -> None:
        """Wait until its process is gone."""
        while (process := self._process) is not None:
            await process.wait()
            await trio.lowlevel.checkpoint()

    def stop(self) -> None:
        """SIGTERM: it ends in order, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._end_expected = True
            self._process.send_signal(signal.SIGTERM)

    def hang_up(self) -> None:
        """SIGHUP: it reads its files again, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    def has_said(self, text: str) -> bool:
        """Return whether its process runs, and the log has a text since its start."""
        if self._process is None or self._process.returncode is not None:
            return False
        with self.log.open("rb") as log:
            log.seek(self._log_begin)
            return text.encode() in log.read()

    def freeze(self) -> None:
        """SIGSTOP: it does nothing until `resume`."""
        if self._process is not None and self._process.returncode is None:
            self._frozen = True
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, if it is frozen."""
        if self._process is not None:
            self._resume(self._process)

    def _resume(self, process: trio.Process) -> None:
        if self._frozen and process.returncode is None:
            process.send_signal(signal.SIGCONT)
        self._frozen = False


def last_words(log: str) -> str:
    """Return the last line of a log that has a word. Nurseries print errors within a frame."""
    for line in reversed(log.splitlines()):
        if words := line.strip(FRAME):
            return words
    return "it said nothing"
