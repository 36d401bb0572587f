"""`python -m bench.groups`: the cost of many idle groups, and the time of their failover."""

from __future__ import annotations

import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from bench.options import COUNT, SECONDS, new_folder_option
from bench.process_figures import memory, ran_s
from dledger.command_line.options import option
from dledger.free_ports import free_ports

_MEMBER = "bench.groups_member"

# No machine takes longer to open a hundred groups and elect their leaders.
START_TIMEOUT_S = 120.0

# Processor time is measured in windows, so that other load of the machine shows as a spread.
WINDOW_S = 2.0


class GroupProcesses:
    """Three processes with a member of each group, and the leaders that they report."""

    def __init__(self, folder: Path, groups: int, election_timeout_ms: int) -> None:
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
        self.groups = [f"g{number}" for number in range(groups)]
        self.leaders: dict[str, tuple[int, str]] = {}  # of each group: term, and the ready leader
        self.ready_at: dict[str, float] = {}
        self._terms: dict[tuple[str, str], int] = {}  # by process and group, as reported last
        self._folder = folder
        self._timeout_ms = election_timeout_ms
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._selector = selectors.DefaultSelector()
        for node_id in self.peers:
            self.start(node_id)

    def start(self, node_id: str) -> None:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", _MEMBER, node_id, json.dumps(self.peers)),
                *(str(self._folder / node_id), str(len(self.groups)), str(self._timeout_ms)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._processes[node_id] = process
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, (node_id, bytearray()))

    def signal(self, node_id: str, number: int) -> None:
        self._processes[node_id].send_signal(number)

    def kill(self, node_id: str) -> None:
        """Kill one process, and forget its leaderships."""
        process = self._processes.pop(node_id)
        process.kill()
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        process.communicate()
        for group in self.led_by(node_id):
            del self.leaders[group]

    def stop(self) -> None:
        for node_id in list(self._processes):
            self.kill(node_id)
        self._selector.close()

    def led_by(self, node_id: str) -> list[str]:
        return [group for group, (_, leader) in self.leaders.items() if leader == node_id]

    def term_at(self, node_id: str, group: str) -> int:
        """Return the term that this process reported last for the group; -1 before."""
        return self._terms.get((node_id, group), -1)

    def pid(self, node_id: str) -> int:
        return self._processes[node_id].pid

    def watch(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Read reports until a condition holds; return whether it did in time."""
        deadline = time.monotonic() + timeout_s
        while not until():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            for key, _ in self._selector.select(left_s):
                node_id, rest = key.data
                data = os.read(key.fd, 65536)
                if not data:
                    raise click.ClickException(f"{node_id} ended by itself")
                *lines, tail = bytes(rest + data).split(b"\n")
                rest[:] = tail
                for line in lines:
                    self._note(node_id, json.loads(line))
        return True

    def all_led(self) -> bool:
        return len(self.leaders) == len(self.groups)

    def _note(self, node_id: str, told: dict[str, object]) -> None:
        group, term = str(told["group"]), int(str(told["term"]))
        self._terms[node_id, group] = term
        known = self.leaders.get(group)
        if told["ready"]:
            if known is None or term > known[0]:
                self.leaders[group] = (term, node_id)
                self.ready_at[group] = time.monotonic()
        elif known is not None and known[1] == node_id:
            del self.leaders[group]


def _idle_cost(processes: GroupProcesses, measured_s: float, console: Console) -> None:
    shares: dict[str, list[float]] = {node_id: [] for node_id in processes.peers}
    for _ in range(max(1, round(measured_s / WINDOW_S))):
        before = {node_id: ran_s(processes.pid(node_id)) for node_id in shares}
        began = time.monotonic()
        processes.watch(lambda: False, WINDOW_S)
        for node_id, values in shares.items():
            used_s = ran_s(processes.pid(node_id)) - before[node_id]
            values.append(100 * used_s / (time.monotonic() - began))
    for node_id, values in shares.items():
        console.print(
            f"{node_id}: leads {len(processes.led_by(node_id))}, "
            f"processor {min(values):.1f} % at least, {statistics.median(values):.1f} % as a rule, "
            f"memory {memory(processes.pid(node_id)).resident:.0f} MiB"
        )


def _fail_over(processes: GroupProcesses, console: Console) -> None:
    victim = max(processes.peers, key=lambda node_id: len(processes.led_by(node_id)))
    orphans = processes.led_by(victim)
    killed_at = time.monotonic()
    processes.kill(victim)
    if not processes.watch(processes.all_led, START_TIMEOUT_S):
        raise click.ClickException("some groups found no leader")
    times = sorted(processes.ready_at[group] - killed_at for group in orphans)
    heirs = Counter(processes.leaders[group][1] for group in orphans)
    console.print(
        f"kill -9 of {victim}, which led {len(orphans)}: new leaders after "
        f"{times[len(times) // 2]:.2f} s (half of them), {times[-1]:.2f} s (all); "
        f"now led by {dict(heirs)}"
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@option("--groups", "Groups of three members.", default=100, type=COUNT)
@option("--seconds", "measured_s", "How long to look at them idle.", default=20.0, type=SECONDS)
@option("--timeout-ms", "Their election timeout.", default=500, type=COUNT)
@new_folder_option
def main(groups: int, measured_s: float, timeout_ms: int, folder: Path | None) -> None:
    """Run idle groups in three real processes; then kill the one that leads most of them."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="groups-", dir=folder or Path.cwd()) as made:
        processes = GroupProcesses(Path(made), groups, timeout_ms)
        try:
            began = time.monotonic()
            if not processes.watch(processes.all_led, START_TIMEOUT_S):
                raise click.ClickException("some groups found no leader")
            console.print(f"{groups} groups led after {time.monotonic() - began:.1f} s")
            processes.watch(lambda: False, 3.0)
            _idle_cost(processes, measured_s, console)
            _fail_over(processes, console)
        finally:
            processes.stop()


if __name__ == "__main__":
    main()
