"""Ships a log to a subscriber that is killed meanwhile, as is a leader: nothing is lost or doubled.

    python shipped_log.py

It starts three members and a subscriber, each a process, and appends three hundred numbered lines
over the network. The subscriber copies them into a file; when it is started again, it goes on
behind the last line that it has. A line whose append has an unknown outcome is appended again, and
the subscriber knows it by its number.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import trio

import dledger
from dledger.free_ports import free_ports

LINES = 300
KILL_SUBSCRIBER_AT, KILL_LEADER_AT = 100, 200
GROUP, COPY = "shipped", Path("copy.txt")


async def member(name: str, peers: dict[str, str]) -> None:
    """Keep a copy of the log."""
    config = dledger.NodeConfig(group=GROUP, node_id=name, peers=peers, data_dir=Path(name))
    async with dledger.open_node(config, dledger.LogOnly()):
        await trio.sleep_forever()


class Copy:
    """The subscriber's file: the index of an entry, the number of its line, and its text."""

    def __init__(self) -> None:
        self._file = COPY.open("a+", buffering=1)
        self._file.seek(0)
        whole, newline, _ = self._file.read().rpartition("\n")
        self._file.truncate(len(whole + newline))  # the last line may be torn
        *_, last = ["-1 0", *whole.splitlines()]
        self.index, self.number = map(int, last.split()[:2])

    def add(self, entry: dledger.Entry) -> None:
        """Write down a line that is not there yet."""
        number = int(entry.body.split()[0])
        if number > self.number:
            self._file.write(f"{entry.index} {entry.body.decode()}\n")
            self.number = number


async def subscribe(peers: dict[str, str]) -> None:
    """Copy the log from where the last run came to."""
    copy = Copy()
    async with dledger.connect(peers, group=GROUP) as log:
        async for entry in log.tail(copy.index + 1):
            if entry.magic == dledger.Magic.NORMAL:  # a leader begins its term with a no-op
                copy.add(entry)
            if copy.number == LINES:
                return


async def publish(log: dledger.RemoteLog, line: str) -> None:
    """Append a line at least once."""
    while True:
        try:
            await log.append(line.encode())
        except dledger.OutcomeUnknown:
            continue  # it may be there: the subscriber skips the second one
        return


class Processes:
    """The members and the subscriber."""

    def __init__(self, folder: str) -> None:
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
        self._folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for name in (*self.peers, "subscriber"):
            self.start(name)

    def start(self, name: str) -> None:
        """Start one of them, in the common folder."""
        words = [f"{peer}={address}" for peer, address in self.peers.items()]
        command = [sys.executable, str(Path(__file__).resolve()), name, *words]
        self.running[name] = subprocess.Popen(command, cwd=self._folder)

    def kill(self, name: str) -> None:
        """Kill one of them."""
        self.running[name].kill()
        self.running[name].wait()


async def ship(folder: str) -> None:
    """Append all lines, kill in between, and wait for the subscriber."""
    processes = Processes(folder)
    try:
        async with dledger.connect(processes.peers, group=GROUP) as log:
            for number in range(1, LINES + 1):
                await publish(log, f"{number} line")
                if number in (KILL_SUBSCRIBER_AT, KILL_LEADER_AT):
                    leader = str((await log.status())["node_id"])
                    name = leader if number == KILL_LEADER_AT else "subscriber"
                    print(f"line {number}: killing {name}", flush=True)
                    processes.kill(name)
                    processes.start(name)
        await trio.to_thread.run_sync(processes.running["subscriber"].wait)
    finally:
        for name in processes.running:
            processes.kill(name)


if __name__ == "__main__":
    peers = dict(word.split("=") for word in sys.argv[2:])
    if not peers:
        with tempfile.TemporaryDirectory() as scratch:
            trio.run(ship, scratch)
            rows = map(str.split, (Path(scratch) / COPY).read_text().splitlines())
            as_appended = [int(row[1]) for row in rows] == list(range(1, LINES + 1))
            print(f"{LINES} lines; each once and in order: {as_appended}")
    elif sys.argv[1] == "subscriber":
        trio.run(subscribe, peers)
    else:
        trio.run(member, sys.argv[1], peers)
