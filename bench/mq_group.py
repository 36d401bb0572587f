"""A name server and a group of three brokers as processes, as `dledger-mq up` starts them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from dledger.free_ports import free_addresses

START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class MqGroup:
    """A running group.

    Attributes:
        address: the group's own; the leader does not accept there.
    """

    nameserver: str
    address: str
    members: list[str]


@contextmanager
def mq_group(folder: Path) -> Iterator[MqGroup]:
    """Run a group with its files in `folder`, which is made. It may have no leader yet."""
    (nameserver,) = free_addresses(1)
    up = subprocess.Popen(
        [
            *(sys.executable, "-m", "dledger_mq", "up"),
            *("--dir", str(folder), "--nameserver", nameserver),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        written = folder / "group.json"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not written.exists():
            if up.poll() is not None or time.monotonic() > deadline:
                raise click.ClickException("the group did not start")
            time.sleep(0.05)
        group = json.loads(written.read_text())["groups"][0]
        yield MqGroup(nameserver, group["address"], [node["client"] for node in group["nodes"]])
    finally:
        up.terminate()
        up.wait()
