"""`dledger serve` as its operator has it: a file, a signal, lines of JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger.free_ports import free_ports

WITHIN_S = 60.0
ROOT = Path(__file__).parent.parent.parent.parent


class Served:
    """One member of a group of one, from a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        self.peers = f"n0=127.0.0.1:{port}"
        self.config = folder / "dledger.toml"
        self.settings: dict[str, Any] = {
            "node": "n0",
            "peers": self.peers,
            "dir": str(folder / "data"),
            "log-format": "json",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, **settings: object) -> None:
        self.settings.update({name.replace("_", "-"): value for name, value in settings.items()})
        lines = [f"{name} = {json.dumps(value)}" for name, value in self.settings.items()]
        self.config.write_text("[serve]\n" + "\n".join(lines) + "\n")

    def start(self) -> None:
        with (self.folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dledger", "--config", str(self.config), "serve"],
                stdout=out,
                stderr=out,
            )

    def lines(self, event: str) -> list[dict[str, Any]]:
        text = (self.folder / "out").read_text()
        rows = [json.loads(line) for line in text.splitlines()]
        return [row for row in rows if row["event"] == event]

    def wait(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        deadline = time.monotonic() + WITHIN_S
        while len(found := self.lines(event)) < count:
            assert time.monotonic() < deadline, (self.folder / "out").read_text()
            time.sleep(0.05)
        return found

    def hang_up(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(WITHIN_S)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path)
    yield running
    if running.process is not None and running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def test_a_member_says_what_happens_to_it_in_lines_of_json(served: Served) -> None:
    (metrics,) = free_ports(1)
    served.write(metrics=f"127.0.0.1:{metrics}")
    served.start()
    (listening,) = served.wait("listening")
    assert (listening["group"], listening["node"], listening["level"]) == ("group", "n0", "info")
    roles = served.wait("role", 2)
    while not roles[-1]["ready"]:
        roles = served.wait("role", len(roles) + 1)
    assert (roles[-1]["role"], roles[-1]["term"], roles[-1]["leader"]) == ("leader", 1, "n0")
    assert served.wait("recovery")[0]["last_index"] == -1
    for page in ("healthz", "readyz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/{page}", timeout=10) as answer:
            assert (answer.status, answer.read()) == (200, b"ok\n")
    assert served.stop() == 0


def test_a_signal_takes_over_what_can_change_and_names_what_cannot(served: Served) -> None:
    served.write()
    served.start()
    served.wait("listening")
    served.write(
        scrub_period_hours=1, preferred_leader="n0", log_level="warning", max_batch_bytes=1000
    )
    served.hang_up()
    (warned,) = served.wait("settings")
    assert warned["level"] == "warning"
    assert warned["settings"] == ["max-batch-bytes"]
    # What cannot be taken over is told each time; the rest is in force and no news.
    served.write(log_level="info")
    served.hang_up()
    told = served.wait("settings", 3)
    assert told[1]["message"] == "changed: log-level = info"
    assert served.stop() == 0


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ({"log_level": "loud"}, "expected one of debug"),
        ({"preferred_leader": "n9"}, "n9 is not one of"),
        ({"snapshot_every_entries": 5}, "the state machine has no methods"),
        ({"nonsense": 5}, "no such key"),
    ],
)
def test_a_file_that_is_wrong_changes_nothing_and_says_why(
    mistake: dict[str, object], said: str, served: Served
) -> None:
    served.write()
    served.start()
    served.wait("listening")
    served.write(scrub_period_hours=1, **mistake)
    served.hang_up()
    (told,) = served.wait("settings")
    assert (told["level"], told["message"].startswith("nothing was changed: ")) == ("error", True)
    assert said in told["message"]
    for name in mistake:
        del served.settings[name.replace("_", "-")]
    served.write()
    served.hang_up()
    told = served.wait("settings", 2)[1]
    assert told["message"] == "changed: scrub-period-hours = 1.0"
    assert served.stop() == 0


def test_a_member_that_was_started_without_a_file_says_so(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dledger", "serve", "--node", "n0"),
                *("--peers", f"n0=127.0.0.1:{port}", "--dir", str(tmp_path)),
            ],
            stdout=out,
            stderr=out,
        )
    try:
        deadline = time.monotonic() + WITHIN_S
        while "listens on" not in (tmp_path / "out").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGHUP)
        while "started without a file" not in (tmp_path / "out").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.terminate()
        assert process.wait(WITHIN_S) == 0
