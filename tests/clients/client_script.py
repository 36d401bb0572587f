"""One script of a foreign client, as a process whose words are kept."""

import os
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.clients.toolchains import Toolchains

HERE = Path(__file__).parent

READY_SECONDS = 30


class Failed(Exception):
    """A scenario did not end as it should; the text says how, in one line."""


class ClientScript:
    """A running script: `cpp_*.py` or `ali_*.js`.

    Args:
        toolchains: where the clients are.
        folder: where its output, its logs and its HOME go.
        script: the file's name.
        arguments: its arguments.
    """

    def __init__(self, toolchains: Toolchains, folder: Path, script: str, *arguments: str) -> None:
        number = len(list(folder.glob("*.out")))
        self._name = script
        self._output = folder / f"{number}-{script}.out"
        home = folder / f"{number}-home"
        home.mkdir()
        # The C++ client writes its logs and its broadcast offsets below HOME.
        environment = {**os.environ, "HOME": str(home)}
        if script.endswith(".js"):
            environment["NODE_PATH"] = str(toolchains.node_path)
            command = ["node", str(HERE / script)]
        else:
            command = [str(toolchains.cpp_python), "-u", str(HERE / script)]
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
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def words(self) -> list[str]:
        """The lines it has printed."""
        return self._output.read_text(errors="replace").splitlines()

    def wait_until_ready(self) -> None:
        """Wait for its line "ready"."""
        deadline = time.monotonic() + READY_SECONDS
        while "ready" not in self.words():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self._name} is not ready; see {self._output}")
            time.sleep(0.1)

    def succeed(self, seconds: float) -> None:
        """Wait for its end, which must be a success. A crash of the C++ client is exit code -11."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"{self._name} still runs after {seconds:g} s; see {self._output}"
            ) from None
        if code:
            words = self.words()
            raise Failed(
                f"{self._name} ended with {code}: {words[-1] if words else 'no word'}; "
                f"see {self._output}"
            )
