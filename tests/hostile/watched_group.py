"""A group of brokers and a name server as processes, each watched from inside."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dledger.free_ports import free_addresses

END_S = 30
# What each line of a log begins with; another one is a traceback, or was put there by a client.
_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \w+ [A-Z]+ ")


class WatchedProcess:
    """One server.

    Attributes:
        name: for the report.
        address: where clients connect.
    """

    def __init__(self, name: str, address: str, folder: Path, arguments: list[str]) -> None:
        self.name = name
        self.address = address
        self._report = folder / f"{name}.json"
        self._errors = folder / f"{name}.err"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.hostile.watched_process"),
                    *(str(self._report), *arguments, "--exit-with-stdin"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def resident_kib(self) -> int:
        """The memory that is resident now."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1])

    def longest_pass_ms(self) -> float:
        """The longest pass of its event loop since this was asked last."""
        self._report.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + END_S
        while not self._report.exists():
            assert time.monotonic() < end, f"{self.name} writes no report"
            time.sleep(0.01)
        passes = json.loads(self._report.read_text(encoding="utf-8"))["longest_passes_ms"]
        return float(passes[0][0])

    def end(self) -> dict[str, Any]:
        """End it as an operator does, and return what it noted."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(END_S) == 0, self._errors.read_text()[-2000:]
        report: dict[str, Any] = json.loads(self._report.read_text(encoding="utf-8"))
        return report

    def kill(self) -> None:
        """Leave no process behind."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(END_S)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def error_bytes(self) -> int:
        """How much it has written about errors."""
        return self._errors.stat().st_size

    def last_errors(self, count: int) -> list[str]:
        """The last lines that it has written about errors."""
        text = self._errors.read_text(encoding="utf-8", errors="replace")
        return text.splitlines(keepends=True)[-count:]

    def strange_lines(self) -> list[str]:
        """The lines about errors that its log did not begin, or that an operator cannot read."""
        with self._errors.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            return [
                line
                for line in lines
                if not (_LINE.match(line) and line.removesuffix("\n").isprintable())
            ]


class WatchedGroup:
    """The processes: the name server and the brokers.

    Attributes:
        shared: the group's address, which its members share. One that does not lead relays.
    """

    def __init__(self, folder: Path, brokers: int) -> None:
        names = [f"n{number}" for number in range(brokers)]
        self.shared, names_address, *addresses = free_addresses(2 + 2 * brokers)
        peers = ",".join(
            f"{name}={address}" for name, address in zip(names, addresses, strict=False)
        )
        self.nameserver = WatchedProcess(
            "nameserver", names_address, folder, ["nameserver", f"--listen={names_address}"]
        )
        self.brokers = [
            WatchedProcess(
                name,
                address,
                folder,
                [
                    *("broker", "--group=kept-group", f"--node={name}", f"--peers={peers}"),
                    *(f"--listen={address}", f"--nameservers={names_address}"),
                    *(f"--listen-group={self.shared}", "--share-port"),
                    f"--dir={folder / name}",
                ],
            )
            for name, address in zip(names, addresses[brokers:], strict=True)
        ]

    @property
    def all(self) -> list[WatchedProcess]:
        return [self.nameserver, *self.brokers]


@contextmanager
def watched_group(folder: Path, brokers: int) -> Iterator[WatchedGroup]:
    """Start the processes, and leave none behind."""
    group = WatchedGroup(folder, brokers)
    try:
        yield group
    finally:
        for process in group.all:
            process.kill()
