"""A Java process that answers lines, so that many scenarios share one start of Java."""

import itertools
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from types import TracebackType

from tests.clients.client_script import Failed
from tests.clients.toolchains import Client, Program, Toolchains


class JavaProcess:
    """A running `LineServer` (see `java/LineServer.java`). Threads may ask at once.

    Args:
        command: starts it.
        folder: for its errors, its logs and its HOME.
        name: of its files.
    """

    def __init__(self, command: Sequence[str], folder: Path, name: str) -> None:
        home = folder / name
        home.mkdir()
        self._name = name
        self._errors = home / "errors"
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[str]] = {}
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=home,  # some commands of operators leave files where they run
                env={**os.environ, "HOME": str(home)},
            )
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, words: Sequence[str], within_s: float) -> str:
        """The answer to words, none of which has a blank in it.

        Raises:
            Failed: the process says so, or it ended, or gives no answer in time.
        """
        number = str(next(self._numbers))
        answer: Future[str] = Future()
        self._waiting[number] = answer
        try:
            with self._lock:
                if self._process.stdin is not None:
                    self._process.stdin.write(" ".join((number, *words)) + "\n")
                    self._process.stdin.flush()
            return answer.result(within_s)
        except FutureTimeoutError:
            raise Failed(
                f"{' '.join(words)}: no answer in {within_s:g} s; see {self._errors}"
            ) from None
        except OSError:
            raise Failed(f"{self._name} has ended; see {self._errors}") from None
        finally:
            self._waiting.pop(number, None)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        if self._process.stdout is not None:
            with self._process.stdout:
                for line in self._process.stdout:
                    number, verdict, text = line.rstrip("\n").split(" ", 2)
                    answer = self._waiting.get(number)
                    if answer is not None and verdict == "ok":
                        answer.set_result(_lines_of(text))
                    elif answer is not None:
                        answer.set_exception(Failed(f"{_lines_of(text)}; see {self._errors}"))
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(Failed(f"{self._name} has ended; see {self._errors}"))


class JavaProcesses:
    """One process for each version of Java's client and each of its programs, started when needed.

    Args:
        toolchains: the clients.
        folder: for the files of the processes.
        names: the name server's address.
    """

    def __init__(self, toolchains: Toolchains, folder: Path, names: str) -> None:
        self._toolchains = toolchains
        self._folder = folder
        self._names = names
        self._lock = threading.Lock()
        self._running: dict[tuple[Client, Program], JavaProcess] = {}

    def __enter__(self) -> "JavaProcesses":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            process.kill()

    def of(self, client: Client, program: Program) -> JavaProcess:
        """The running process."""
        with self._lock:
            if (client, program) not in self._running:
                command = (*self._toolchains[client].programs[program], self._names)
                self._running[client, program] = JavaProcess(
                    command, self._folder, f"{client}-{program}"
                )
            return self._running[client, program]


def _lines_of(text: str) -> str:
    r"""The text of an answer, in which "\n" stands for a line's end."""
    return "\\".join(piece.replace("\\n", "\n") for piece in text.split("\\\\"))
