"""A name server and three brokers as real processes, started by the command that users type."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from dledger.client.group_client import GroupClient, GroupUnreachable
from dledger.declared_error import DeclaredError
from dledger.free_ports import free_addresses
from dledger_mq.clusters.group_directory import ClusterPlan, GroupDirectory

# Three processes start and elect in less, unless the cluster does not start at all.
READY_TIMEOUT_S = 60.0

# A broker that is asked to stop closes its files; see the command's own limit.
STOP_TIMEOUT_S = 20.0

# A killed broker is started again after this long: the others have elected a leader by then.
RESTART_AFTER_S = 2.0

POLL_S = 0.05


class DemoFailed(DeclaredError):
    """The demo found a broken promise, or could not go on."""

    problem: str


@dataclass(slots=True)
class Cluster:
    nameserver: str
    directory: GroupDirectory
    plan: ClusterPlan
    process: trio.Process

    def log_folder(self, node: str) -> Path:
        return self.directory.node_path(node)

    async def leader(self) -> str:
        client = self._client()
        with trio.fail_after(READY_TIMEOUT_S):
            while (found := await client.ready_leader()) is None:
                await trio.sleep(POLL_S)
        return found

    def kill(self, node: str) -> None:
        """Kill a node's process; the command that watches it starts it again."""
        os.kill(self.directory.read_pids()[node], signal.SIGKILL)

    async def wait_caught_up(self) -> None:
        """Wait until every node has applied all committed entries."""
        client = self._client()
        with trio.fail_after(READY_TIMEOUT_S):
            while not await self._equal(client):
                await trio.sleep(POLL_S)

    async def stop(self) -> None:
        """Stop everything, as Ctrl-C does."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
            with trio.CancelScope(shield=True), trio.move_on_after(STOP_TIMEOUT_S):
                await self.process.wait()
        if self.process.returncode is None:
            self.process.kill()

    def _client(self) -> GroupClient:
        peers = {node.name: node.peer_address for node in self.plan.nodes}
        return GroupClient(self.plan.groups[0].name, peers)

    async def _equal(self, client: GroupClient) -> bool:
        applied = set()
        for node in self.plan.nodes:
            try:
                status = await client.status(node.name)
            except (GroupUnreachable, OSError, trio.BrokenResourceError):
                return False
            applied |= {status["applied"], status["last_index"]}
        return len(applied) == 1


@asynccontextmanager
async def running_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Start the cluster, wait until a leader serves, and stop it in the end."""
    nameserver = free_addresses(1)[0]
    log = folder / "up.log"
    with log.open("wb") as output:
        process = await trio.lowlevel.open_process(
            [
                *(sys.executable, "-m", "dledger_mq", "up", "--nodes", "3"),
                *("--dir", str(folder / "group"), "--nameserver", nameserver),
                *("--restart-after", str(RESTART_AFTER_S)),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    directory = GroupDirectory(folder / "group")
    try:
        await _wait_ready(process, log)
        plan = directory.read_plan()
        if plan is None:
            raise DemoFailed(f"{directory.path} holds no group")
        cluster = Cluster(nameserver, directory, plan, process)
        try:
            yield cluster
        finally:
            await cluster.stop()
    finally:
        if process.returncode is None:
            process.kill()


async def _wait_ready(process: trio.Process, log: Path) -> None:
    with trio.move_on_after(READY_TIMEOUT_S):
        while process.poll() is None:
            lines = log.read_text().splitlines()
            if any(line.startswith("ready") for line in lines):
                return
            await trio.sleep(POLL_S)
    last = (log.read_text().splitlines() or ["it said nothing"])[-1]
    raise DemoFailed(f"the cluster did not start: {last}")
