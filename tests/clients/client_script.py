"""One program of a client that others wrote, as a process whose words are kept."""

import os
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Literal

from tests.clients.toolchains import Installed

READY_S = 30


class Failed(Exception):
    """A scenario did not end as it should; the text says how, in one line."""


class ClientScript:
    """A running program of a client, which sends or consumes.

    Args:
        installed: the client.
        folder: where its output, its logs and its HOME go.
        role: which of its programs.
        arguments: its arguments.
    """

    def __init__(
        self, installed: Installed, folder: Path, role: Literal["send", "consume"], *arguments: str
    ) -> None:
        number = len(list(folder.glob("*.out")))
        command = installed.programs[role]
        self._name = Path(command[-1]).name
        self._output = folder / f"{number}-{self._name}.out"
        home = folder / f"{number}-home"
        home.mkdir()
        # The C++ and Java clients write their logs and broadcast offsets below HOME.
        environment = {**os.environ, **installed.environment, "HOME": str(home)}
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [*command, *arguments], stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def __enter__(self) -> "ClientScript":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def words(self) -> list[str]:
        """The whole lines that it has printed."""
        return self._output.read_text(errors="replace").split("\n")[:-1]

    def wait_until_ready(self) -> None:
        """Wait for its line "ready"."""
        deadline = time.monotonic() + READY_S
        while "ready" not in self.words():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self._name} is not ready; see {self._output}")
            time.sleep(0.1)

    def crash(self) -> str | None:
        """How it ended, if it ended by itself."""
        code = self._process.poll()
        return None if code is None else f"{self._name} ended with {code}; see {self._output}"

    def kill(self) -> None:
        """End it at once; it is no error if it has ended before."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def end(self, within_s: float) -> int:
        """Wait for its end; its exit code."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"{self._name} still runs after {within_s:g} s; see {self._output}"
            ) from None

    def succeed(self, within_s: float) -> None:
        """Wait for its end, which must be a success. A crash of the C++ client is exit code -11."""
        code = self.end(within_s)
        if code:
            words = self.words()
            raise Failed(
                f"{self._name} ended with {code}: {words[-1] if words else 'no word'}; "
                f"see {self._output}"
            )
