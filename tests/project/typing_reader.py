"""Follows a page with nothing but the wheel: a shell in an empty folder, and a fresh environment.

The network is not used. What the wheel depends on is lent to the fresh environment by links to what
is installed here, and only what the wheel says it depends on. pip is lent as well: for Python to
install its own into the environment takes longer than half of the tutorial.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import TracebackType

from packaging.requirements import Requirement

from tests.project.typed_page import Interrupt, SaveFile, Step, TypedCommand, masked

# Generous for a busy machine with two cores: the slowest command takes 3 s alone.
COMMAND_MAX_S = 300
# What may come in between: at its next command the shell tells of a job that `kill` has ended, and
# a program warns of members that are not started yet.
IN_BETWEEN = re.compile(
    r"bash: line \d+: +\d+ (Killed|Terminated) |peers at \S+: cannot be reached"
)
MARK = "--- what was typed has ended ---"
PIP = "#!{python}\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"


class Terminal:
    """A shell that is typed into; at its end, whatever was started from it is killed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def begin(self, command: str) -> None:
        """Type a command. It cannot read what is typed after it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f'{{ {command}\n}} </dev/null\necho "\n{MARK}" $?\n')

    def line(self) -> str:
        """The next line that shows. Raises queue.Empty when none comes for long."""
        return self._lines.get(timeout=COMMAND_MAX_S)

    def type(self, command: str) -> tuple[list[str], int]:
        """Type a command; what it printed, and its exit status."""
        self.begin(command)
        shown: list[str] = []
        while not (line := self.line()).startswith(MARK):
            shown.append(line)
        return shown, int(line.removeprefix(MARK))

    def interrupt(self) -> int:
        """Ctrl-C: to whatever runs in this terminal, not to the shell. The exit status."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for child in children.read_text(encoding="ascii").split():
            os.kill(int(child), signal.SIGINT)
        while not (line := self.line()).startswith(MARK):
            pass
        return int(line.removeprefix(MARK))


class Reader:
    """Somebody who follows a page, in a folder that holds the wheel.

    Args:
        folder: where; the environment is made in `.venv` there, by the page.
        ports: what stands on the page, and what to take instead.
        lent: a folder with what the wheel depends on.
    """

    def __init__(self, folder: Path, ports: dict[str, str], lent: Path) -> None:
        self._folder = folder
        self._ports = ports
        self._lent = lent
        _link(distribution("pip"), lent)
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        self._environment = {
            **kept,
            "PATH": path,
            "PIP_NO_INDEX": "1",  # the wheel alone, and nothing from anywhere else
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_COMPILE": "0",  # most of the wheel is never imported here
            "COLUMNS": "160",
        }
        self._terminal = Terminal(folder, self._environment)
        self._other: Terminal | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *reason: object) -> None:
        self._terminal.__exit__(None, None, None)
        if self._other is not None:
            self._other.__exit__(None, None, None)

    def do(self, step: Step) -> None:
        """One step of the page. Raises AssertionError when something else shows than it says."""
        match step:
            case SaveFile(name, content):
                (self._folder / name).write_text(self._here(content), encoding="utf-8")
            case TypedCommand(command, shown, elsewhere=True):
                self._type_elsewhere(command, shown)
            case TypedCommand(command, shown):
                found, status = self._terminal.type(self._here(command))
                printed = [line for line in found if not IN_BETWEEN.match(line)]
                assert masked(printed) == masked(shown), f"$ {command}\n" + "\n".join(found)
                assert status == 0, f"$ {command}: {status}\n" + "\n".join(found)
            case Interrupt():
                assert self._other is not None, "there is no other terminal"
                assert self._other.interrupt() == 0
        self._lend()

    def _type_elsewhere(self, command: str, shown: list[str]) -> None:
        if self._other is None:
            self._other = Terminal(self._folder, self._environment)
        if not shown:
            _, status = self._other.type(command)
            assert status == 0, command
            return
        self._other.begin(command)
        expected = masked(shown)[-1]
        found: list[str] = []
        while expected not in masked(found):
            found.append(self._other.line())
            assert not found[-1].startswith(MARK), f"$ {command}\n" + "\n".join(found)

    def _here(self, text: str) -> str:
        text = text.replace("-m venv ", "-m venv --without-pip ")
        for shown, taken in self._ports.items():
            text = text.replace(shown, taken)
        return text

    def _lend(self) -> None:
        """Let the fresh environment find what the wheel depends on."""
        for folder in (self._folder / ".venv" / "lib").glob("python3.*/site-packages"):
            lent = folder / "lent.pth"
            # Once: a member that is starting behind the shell might read it half written.
            if not lent.exists():
                lent.write_text(f"{self._lent}\n", encoding="utf-8")
                pip = folder.parents[2] / "bin" / "pip"
                pip.write_text(PIP.format(python=pip.with_name("python")), encoding="utf-8")
                pip.chmod(0o755)


def lend_dependencies(name: str, folder: Path) -> None:
    """Link everything that an installed distribution depends on into a folder, and not itself."""
    wanted, seen = [name], {name}
    while wanted:
        found = distribution(wanted.pop())
        for text in found.requires or ():
            requirement = Requirement(text)
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if needed and requirement.name not in seen:
                seen.add(requirement.name)
                wanted.append(requirement.name)
        if found.name != name:
            _link(found, folder)


def _link(found: Distribution, folder: Path) -> None:
    roots = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "/")}
    for root in roots - {"__pycache__"}:
        target = folder / root
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(root))))
