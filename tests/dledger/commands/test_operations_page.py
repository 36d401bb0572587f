"""The page for operators does what it says: its files and commands, in their order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.free_ports import free_ports

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = ROOT / "docs" / "operations.md"
BLOCK = re.compile(
    r"(?:<!-- file (?P<path>\S+) -->\n```toml\n(?P<file>.*?)```)"
    r"|(?:```console\n(?P<console>.*?)```)",
    re.DOTALL,
)
UNIT = re.compile(r"systemctl (start|stop|reload) dledger@(\S+)")
ACCEPTED = re.compile(r"(dledger recover (\S+)) --accept-loss-after 4711")
WITHIN_S = 90.0


class Machines:
    """The machines of the page, all of them here: each path and address stands for another one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stands_for = {
            "/etc/dledger": f"{folder}/etc",
            "/var/lib/dledger": f"{folder}/var",
            "/backup": f"{folder}/backup",
        }
        for at, port in enumerate(free_ports(4), 1):
            self.stands_for[f"10.0.0.{at}:20911"] = f"127.0.0.1:{port}"
        (folder / "etc").mkdir()
        (folder / "backup").mkdir()
        command = folder / "bin" / "dledger"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m dledger "$@"\n')
        command.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
        }

    def here(self, text: str) -> str:
        for there, here in self.stands_for.items():
            text = text.replace(there, here)
        return text

    def write(self, path: str, content: str) -> None:
        Path(self.here(path)).write_text(self.here(content))
        Path(self.here(path)).chmod(0o600)
        if path.endswith("/n0.toml"):  # the page says how those of the other two differ
            for name in ("n1", "n2"):
                other = content.replace('node = "n0"', f'node = "{name}"')
                Path(self.here(path.replace("n0", name))).write_text(self.here(other))

    def do(self, command: str, printed: list[str]) -> None:
        if (unit := UNIT.fullmatch(command)) is not None:
            getattr(self, unit[1])(unit[2])
            return
        command = ACCEPTED.sub(self._accepted, command)
        ended = subprocess.run(
            self.here(command),
            shell=True,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}{self.logs()}"
        told = {masked(line) for line in ended.stdout.splitlines()}
        for line in printed:
            assert masked(self.here(line)) in told, f"{command}\n{ended.stdout}"

    def _accepted(self, found: re.Match[str]) -> str:
        told = subprocess.run(
            self.here(f"dledger recover --compare --json {found[2]}"),
            shell=True,
            env=self.environment,
            capture_output=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        last = json.loads(told.stdout)["folders"][0]["last_index"]
        return f"{found[1]} --accept-loss-after {last}"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        return "".join(f"--- {name}\n{self.log(name)}" for name in self.processes)

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                ["dledger", "--config", f"{self.folder}/etc/{name}.toml", "serve"],
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self._wait(name, "listens on")

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(WITHIN_S) == 0

    def reload(self, name: str) -> None:
        path = self.folder / "etc" / f"{name}.toml"
        path.write_text(path.read_text() + "scrub-period-hours = 12\n")
        self.processes[name].send_signal(signal.SIGHUP)
        self._wait(name, "changed: scrub-period-hours = 12.0")

    def _wait(self, name: str, text: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while text not in self.log(name):
            assert time.monotonic() < deadline, self.log(name)
            assert self.processes[name].poll() is None, self.log(name)
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def masked(line: str) -> str:
    return re.sub(r"\d+", "0", " ".join(line.split()))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    running = Machines(tmp_path)
    yield running
    running.end()


def steps() -> Iterator[tuple[str, list[str]]]:
    """Commands with the lines they print; a file as a command of one word."""
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["path"]:
            yield block["path"], [block["file"]]
            continue
        command, printed = "", list[str]()
        for line in block["console"].splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, printed
                command, printed = line.removeprefix("$ "), []
            else:
                printed.append(line)
        yield command, printed


@pytest.mark.slow
@pytest.mark.long
def test_what_the_page_of_operators_shows_is_what_happens(machines: Machines) -> None:
    done = 0
    for command, printed in steps():
        if command.startswith("/"):
            machines.write(command, printed[0])
        else:
            machines.do(command, printed)
            done += 1
    assert done >= 30
    told = subprocess.run(
        ["dledger", "--config", f"{machines.folder}/etc/n1.toml", "tail", "--json"],
        env=machines.environment,
        capture_output=True,
        check=True,
    )
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    bodies = [row["body"] for row in rows if row["kind"] == "normal"]
    assert bodies == ["hello", "after the restore", "after the recovery"]
