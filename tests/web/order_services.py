"""What the documented web programs use: a group of brokers, and a group that keeps a log."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dledger.blocking
import dledger_mq
import dledger_mq.blocking
from dledger.errors import Rejected
from dledger.free_ports import free_ports
from dledger.local_group import serve_command
from dledger_mq.testing import BlockingCluster, blocking_cluster

GROUP, TOPIC = "orders", "Orders"


class LogMembers:
    """Three members of a log, each a process."""

    def __init__(self, folder: Path) -> None:
        self.peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in self.peers:
            self.start(name, "--new")

    def start(self, name: str, *more: str) -> None:
        """Start a member on its files."""
        command = serve_command(GROUP, name, self.peers, self._folder, more)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, name: str) -> None:
        """End a member as `kill -9` does."""
        process = self._processes[name]
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def end(self) -> None:
        """Kill all of them."""
        for name in self.peers:
            self.kill(name)


class OrderServices:
    """Both groups; the programs find them by their environment."""

    def __init__(self, brokers: BlockingCluster, members: LogMembers) -> None:
        self._brokers = brokers
        self._members = members
        self.environment = {
            "ORDERS_LOG": ",".join(members.peers.values()),
            "NAMESRV_ADDR": ";".join(brokers.nameservers),
        }

    @contextmanager
    def leaders_killed(self) -> Iterator[None]:
        """Kill both leaders; start them again at the end."""
        leader = self.log_leader()
        self._members.kill(leader)
        broker = self._brokers.kill()
        try:
            yield
        finally:
            self._members.start(leader)
            self._brokers.restart(broker)

    def log_leader(self) -> str:
        """The member that leads the log, when it takes appends."""
        with dledger.blocking.open_group(GROUP, self._members.peers) as group:
            while True:
                try:
                    leader = group.ready_leader()
                except Rejected:
                    continue
                if leader is not None:
                    return leader

    def entries(self) -> list[str]:
        """The bodies in the log."""
        self.log_leader()
        with dledger.blocking.connect(self._members.peers, group=GROUP) as log:
            found = log.tail(0, follow=False)  # the first index of a log
            return [each.body.decode() for each in found if each.magic == dledger.Magic.NORMAL]

    def messages(self) -> list[str]:
        """The bodies of the messages in the topic."""
        self._brokers.leader()
        bodies: list[str] = []
        reader = dledger_mq.PullConsumer("readers", nameservers=self._brokers.nameservers)
        with dledger_mq.blocking.open_pull_consumer(reader) as opened:
            for queue in opened.queues(TOPIC):
                offset, end = opened.first_offset(queue), opened.next_offset(queue)
                while offset < end:
                    pulled = opened.pull(queue, offset)
                    bodies += [message.body.decode() for message in pulled.messages]
                    offset = pulled.next_offset
        return bodies


@contextmanager
def order_services(folder: Path) -> Iterator[OrderServices]:
    """Start both groups; end them with the block."""
    members = LogMembers(folder)
    try:
        with blocking_cluster() as brokers:
            yield OrderServices(brokers, members)
    finally:
        members.end()
