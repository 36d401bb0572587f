"""One group under load that loses its leader again and again."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.one_run import RunFailed, end
from bench.peers.watched import Watching
from bench.place import Place
from bench.read_back import ACKNOWLEDGED, count_lost
from bench.workload import Workload

KILL, STOP = "kill -9", "SIGSTOP"
# Longer than any election, with the catching up before it.
PATIENCE_S = 90.0
_POLL_S = 0.001


class Verdict(NamedTuple):
    """Numbers of acknowledged appends, and of those that are lost."""

    acknowledged: int
    lost: int


class Watch:
    """Members and clients of one group. A context manager that ends all of them."""

    def __init__(self, watching: Watching, place: Place, workload: Workload) -> None:
        self._watching = watching
        self._place = place
        self._workload = workload
        self._errors = (place.folder / "complaints").open("wb")
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Watch:
        for node_id in self._place.peers:
            self._start_member(node_id)
        self._clients = self._start(self._watching.clients(self._place, self._workload))
        self._selector.register(self._clients.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        everyone = [*self._members.values(), *([self._clients] if self._clients else [])]
        end(everyone)
        self._selector.close()
        self._errors.close()

    def settle(self) -> str:
        """Wait until a member leads and appends are acknowledged; return its name."""
        time.sleep(self._watching.settled_s)
        deadline = time.monotonic() + PATIENCE_S
        while not (leader := self._ask("leader", "leader")):
            if time.monotonic() > deadline:
                raise RunFailed(f"no member led all the others for {PATIENCE_S:g} s")
            time.sleep(0.1)
        self._ask("fault", "noted")
        self._wait_for("acknowledged_anew")
        return str(leader)

    def take_leader(self, fault: str) -> float | None:
        """Kill or stop the leader, and bring it back; return the outage for clients in ms.

        It lasts from just before the signal to the first acknowledgement of an append that began
        after it. None if the member had lost leadership before.
        """
        leader = self.settle()
        process = self._members[leader]
        began = time.monotonic()
        if fault == KILL:
            process.kill()
            process.wait()
        else:
            process.send_signal(signal.SIGSTOP)
            while not is_stopped(process.pid):
                time.sleep(_POLL_S)
        self._ask("fault", "noted")
        self._wait_for("acknowledged_anew")
        took_ms = (time.monotonic() - began) * 1000
        successor = self._ask("leader", "leader")
        if fault == KILL:
            end([process])  # closes its pipes
            self._start_member(leader)
        else:
            process.send_signal(signal.SIGCONT)
        return None if successor == leader else took_ms

    def pause(self, names: list[str], pause_s: float) -> float:
        """Stop members, and resume them together; return ms from then until clients were served."""
        processes = [self._members[name] for name in names]
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        time.sleep(pause_s)
        for process in processes:
            process.send_signal(signal.SIGCONT)
        began = time.monotonic()
        self._ask("fault", "noted")
        self._wait_for("acknowledged_anew")
        return (time.monotonic() - began) * 1000

    def verdict(self) -> Verdict:
        """Stop the clients, and look for all acknowledged appends."""
        self.settle()
        if not self._watching.in_files:
            self._tell("stop")
            found = self._wait_for("acknowledged")
            return Verdict(found["acknowledged"], found["lost"])
        acknowledged = self._ask("stop", "acknowledged")
        time.sleep(self._watching.settled_s)  # the slowest member catches up
        end(list(self._members.values()))
        numbers = (self._place.folder / ACKNOWLEDGED).read_bytes()
        folders = [self._place.folder / node_id for node_id in self._members]
        return Verdict(acknowledged, count_lost(numbers, folders))

    # --- processes ----------------------------------------------------------------------------

    def _start_member(self, node_id: str) -> None:
        self._members[node_id] = self._start(self._watching.member(self._place, node_id))

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, bufsize=0)

    # --- talking to the clients -----------------------------------------------------------------

    def _tell(self, line: str) -> None:
        self._clients.stdin.write(f"{line}\n".encode())  # type: ignore[union-attr]

    def _ask(self, line: str, name: str) -> Any:
        self._tell(line)
        return self._wait_for(name)[name]

    def _wait_for(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while self._selector.select(max(0.0, deadline - time.monotonic())):
            line = self._clients.stdout.readline()  # type: ignore[union-attr]
            if not line:
                raise RunFailed("the clients ended")
            found: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
            if name in found:
                return found
        raise RunFailed(f"the clients did not say {name!r} within {PATIENCE_S:g} s")


def is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "T"
