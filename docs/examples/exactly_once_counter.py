"""Counts to 300 while the leader is killed, and has counted 300: not 299, not 301.

    python exactly_once_counter.py

It starts three members, each a process, adds 1 three hundred times through a session, and kills the
leader with SIGKILL three times meanwhile. An addition whose answer is lost with the leader is sent
again under its number, and the group knows whether it has carried it out.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

import dledger
from dledger.free_ports import free_ports
from dledger.machines import CounterCalls, Objects, ReplicatedCounter

ADDITIONS = 300
KILL_EVERY = 100


async def member(name: str, peers: dict[str, str]) -> None:
    """Run one member."""
    machine = dledger.WithSessions(Objects(visits=ReplicatedCounter()))
    config = dledger.NodeConfig(group="count", node_id=name, peers=peers, data_dir=Path("count"))
    async with dledger.open_node(config, machine):
        await trio.sleep_forever()


class Members:
    """The processes of the members."""

    def __init__(self, folder: str) -> None:
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
        self._folder = folder
        self._processes = {name: self._start(name) for name in self.peers}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        words = [f"{peer}={address}" for peer, address in self.peers.items()]
        command = [sys.executable, str(Path(__file__).resolve()), name, *words]
        return subprocess.Popen(command, cwd=self._folder)

    def kill(self, name: str) -> None:
        """Kill a member, and start it again."""
        self._processes[name].kill()
        self._processes[name].wait()
        self._processes[name] = self._start(name)

    def end(self) -> None:
        """Kill all of them."""
        for process in self._processes.values():
            process.kill()
            process.wait()


@contextmanager
def members() -> Iterator[Members]:
    """Three members, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        running = Members(folder)
        try:
            yield running
        finally:
            running.end()


async def count() -> None:
    """Add, and kill in between."""
    with members() as running:
        client = dledger.GroupClient("count", running.peers)
        async with client.session() as session, trio.open_nursery() as nursery:
            visits = CounterCalls(session, "visits")
            for number in range(1, ADDITIONS + 1):
                if number % KILL_EVERY == KILL_EVERY // 2:
                    leader = await client.ready_leader()
                    if leader is not None:
                        print(f"addition {number}: killing the leader, {leader}", flush=True)
                        nursery.start_soon(trio.to_thread.run_sync, running.kill, leader)
                await visits.add(1)  # sent again, if need be, until it is answered
            print(f"added {ADDITIONS} times; the counter says {await visits.get()}")


if __name__ == "__main__":
    if sys.argv[1:]:
        trio.run(member, sys.argv[1], dict(word.split("=") for word in sys.argv[2:]))
    else:
        trio.run(count)
