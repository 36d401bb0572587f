"""A group of three whose links take time, and the outages when its leader is killed."""

from __future__ import annotations

import json
import math
import selectors
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.delayed_links import READY
from bench.distant_member import ACKNOWLEDGED, FOLLOWS
from bench.one_run import RunFailed, end, last_complaint
from bench.place import Place
from bench.system import Command, python_module
from bench.workload import Workload

# Longer than any election over such links.
PATIENCE_S = 90.0
# A restarted member has the entries that it missed.
SETTLED_S = 2.0
# The page on operations asks for three round trips before a member stands.
_ROUND_TRIPS_IN_A_TIMEOUT = 3
_TIMEOUT_STEP_MS = 500
_MS_PER_S = 1000.0


def election_timeout_ms(round_trip_ms: int) -> int:
    """Return three round trips, rounded up to half a second."""
    steps = math.ceil(_ROUND_TRIPS_IN_A_TIMEOUT * round_trip_ms / _TIMEOUT_STEP_MS)
    return max(1, steps) * _TIMEOUT_STEP_MS


def member_command(
    place: Place, node_id: str, task: str, round_trip_ms: int, workload: Workload
) -> Command:
    """Start a member at its own address, which others reach through a delayed link."""
    config = {
        "node_id": node_id,
        "peers": place.inner,
        "listen": place.peers[node_id],
        "data_dir": str(place.folder / node_id),
        "election_timeout_ms": election_timeout_ms(round_trip_ms),
    }
    words = [task, json.dumps(config), workload.to_json()]
    return [*python_module("distant_member"), *words]


@contextmanager
def delayed_links(place: Place, round_trip_ms: int) -> Iterator[None]:
    """Run a process that carries the messages between members, during a block. Raises RunFailed."""
    links = {place.inner[node_id]: place.peers[node_id] for node_id in place.peers}
    command = [*python_module("delayed_links"), str(round_trip_ms), json.dumps(links)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.readline().strip() != READY.encode():  # type: ignore[union-attr]
                raise RunFailed("the delayed links ended before they were ready")
            yield
        finally:
            process.kill()


class DistantGroup:
    """Members that append while they lead. A context manager that ends them."""

    def __init__(self, place: Place, round_trip_ms: int, workload: Workload, task: str) -> None:
        self._commands = {
            node_id: member_command(place, node_id, task, round_trip_ms, workload)
            for node_id in place.peers
        }
        self._round_trip_ms = round_trip_ms
        self._complaints = place.folder / "complaints"
        self._errors = self._complaints.open("ab")
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._acknowledged: dict[str, float] = {}  # since when, by the members that led
        self._followers: set[str] = set()
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> DistantGroup:
        for node_id in self._commands:
            self._start(node_id)
        return self

    def __exit__(self, *_: object) -> None:
        end(list(self._members.values()))
        self._selector.close()
        self._errors.close()

    def lose_leader(self) -> float | None:
        """Kill the leader and restart it; return the outage in milliseconds.

        It lasts from just before the signal to the first acknowledged append of the next leader, in
        its own process. None if another member led before.
        """
        leader = self._settle()
        process = self._members.pop(leader)
        self._selector.unregister(process.stdout)  # type: ignore[arg-type]
        self._acknowledged.clear()
        began = time.monotonic()
        end([process])
        while not self._acknowledged:
            self._note_line(began + PATIENCE_S, "no member leads after a kill")
        acknowledged_at = min(self._acknowledged.values())
        self._start(leader)
        return (acknowledged_at - began) * _MS_PER_S if acknowledged_at >= began else None

    def _settle(self) -> str:
        """Wait until a member leads and the others follow; return its name."""
        deadline = time.monotonic() + PATIENCE_S
        others = len(self._commands) - 1
        while not self._acknowledged or len(self._followers - {self._leader()}) < others:
            self._note_line(deadline, "not every member leads or follows")
        time.sleep(SETTLED_S + 2 * self._round_trip_ms / _MS_PER_S)
        while self._selector.select(0):
            self._note_line(deadline, "")
        return self._leader()

    def _leader(self) -> str:
        return max(self._acknowledged, key=self._acknowledged.__getitem__)

    def _start(self, node_id: str) -> None:
        pipe = subprocess.PIPE
        self._followers.discard(node_id)
        # Without a buffer: a line that waits in one would not wake the selector.
        process = subprocess.Popen(
            self._commands[node_id], stdin=pipe, stdout=pipe, stderr=self._errors, bufsize=0
        )
        self._members[node_id] = process
        self._selector.register(process.stdout, selectors.EVENT_READ, node_id)  # type: ignore[arg-type]

    def _note_line(self, deadline: float, problem: str) -> None:
        """Read one line of any member. Raises RunFailed."""
        for key, _ in self._selector.select(max(0.0, deadline - time.monotonic()))[:1]:
            node_id: str = key.data
            line = self._members[node_id].stdout.readline()  # type: ignore[union-attr]
            if not line:
                raise RunFailed(f"{node_id} ended by itself{last_complaint(self._complaints)}")
            told = json.loads(line)
            if ACKNOWLEDGED in told:
                self._acknowledged[node_id] = told[ACKNOWLEDGED]
            if FOLLOWS in told:
                self._followers.add(node_id)
            return
        raise RunFailed(f"{problem}: {PATIENCE_S:g} s are over")
