"""A cluster of real processes for tests, with calls that kill and freeze processes."""

import logging
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dledger.free_ports import free_addresses
from dledger_mq.admin.admin import Admin
from dledger_mq.clusters.group_directory import ClusterPlan, GroupDirectory
from dledger_mq.clusters.local_cluster import LocalCluster, Program
from dledger_mq.clusters.local_leaders import DOUBT_S, members_in_doubt, serving_leaders
from dledger_mq.clusters.new_groups import CLUSTER, new_groups
from dledger_mq.connection.client import Client
from dledger_mq.connection.lifetime import Background
from dledger_mq.errors import MessagingError, NoLeaderInTime, NotRunning
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# A group elects within a second. The rest is for busy machines, on which processes load slowly.
LEADER_S: Final = 30.0

# How often the name server is asked for the leader.
_LOOK_S: Final = 0.05

# A frozen process cannot notice that its parent has died. This shell notices, and resumes it.
_GUARD: Final = "cat >/dev/null; kill -CONT {pid} 2>/dev/null"


class Cluster:
    """A name server and groups of brokers as processes of this machine. Made by `cluster`.

    A process is named "nameserver", or like its node. Where the name is optional, the default is
    the leader; with several groups, the leader of the first.

    Attributes:
        nameservers: for the clients of the cluster.
        nodes: the names of the brokers.
        directory: holds the files of the processes, and their logs as `<name>.log`.
    """

    def __init__(self, directory: GroupDirectory, plan: ClusterPlan) -> None:
        self.nameservers: Final = [plan.nameserver]
        self.nodes: Final = tuple(node.name for node in plan.nodes)
        self.directory: Final = directory.path
        self._plan = plan
        self._local = LocalCluster(directory, plan, partial(_log.info, "%s"))
        self._programs = {program.name: program for program in self._local.programs()}
        self._nursery: trio.Nursery | None = None
        self._ended: dict[str, trio.Event] = {}
        self._guards: dict[str, trio.Process] = {}  # of frozen processes

    @property
    def running(self) -> list[str]:
        """The names of the processes that run now, frozen ones included."""
        return sorted(self._local.running)

    async def leader(self, group: str | None = None) -> str:
        """Wait until a node leads and answers; return its name.

        Args:
            group: the group's name; the first one's when None.

        Raises:
            NoLeaderInTime: there was no leader for 30 s.
        """
        wanted = self._plan.groups[0].name if group is None else group
        with trio.move_on_after(LEADER_S):
            async with Client(self.nameservers) as client, Admin(client=client) as admin:
                while True:
                    try:
                        leaders = await serving_leaders(client, admin, self._plan)
                    except (MessagingError, RemotingError):
                        leaders = {}  # the name server does not answer yet
                    if wanted in leaders and self._works(leaders[wanted].name):
                        return leaders[wanted].name
                    await trio.sleep(_LOOK_S)
        raise NoLeaderInTime(wanted, LEADER_S)

    async def kill(self, name: str | None = None) -> str:
        """Kill a process as `kill -9` does, and wait until it has ended.

        Args:
            name: the process; the leader when None.

        Returns:
            The name of the process.

        Raises:
            NotRunning: there is no such process now.
        """
        name = await self.leader() if name is None else name
        self._process(name).kill()
        await self._ended[name].wait()
        await self._dismiss_guard(name)
        return name

    async def freeze(self, name: str | None = None) -> str:
        """Stop a process with SIGSTOP: it keeps its connections, and answers nothing.

        Args:
            name: the process; the leader when None.

        Returns:
            The name of the process.

        Raises:
            NotRunning: there is no such process now.
        """
        name = await self.leader() if name is None else name
        process = self._process(name)
        if name not in self._guards:
            self._guards[name] = await trio.lowlevel.open_process(
                ["/bin/sh", "-c", _GUARD.format(pid=process.pid)],
                stdin=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C must not end it before this process
            )
        process.send_signal(signal.SIGSTOP)
        return name

    async def resume(self, name: str) -> None:
        """Resume a frozen process with SIGCONT.

        Raises:
            NotRunning: there is no such process now.
        """
        self._process(name).send_signal(signal.SIGCONT)
        await self._dismiss_guard(name)

    async def restart(self, name: str) -> None:
        """Start a process again with its files, and wait until it listens; kill it if it runs.

        Raises:
            NotRunning: the cluster has no process of this name.
            MessagingError: it died before it listened.
        """
        program = self._programs.get(name)
        if program is None or self._nursery is None:
            raise NotRunning(name, self.running)
        if name in self._local.running:
            await self.kill(name)
        await self._nursery.start(self._run, program)

    async def _start(self, nursery: trio.Nursery) -> None:
        """Start every process, and wait for a leader of each group."""
        self._nursery = nursery
        nameserver, *brokers = self._programs.values()
        problems: list[MessagingError] = []

        async def start(program: Program) -> None:
            try:
                await nursery.start(self._run, program)
            except MessagingError as error:
                problems.append(error)

        await start(nameserver)
        async with trio.open_nursery() as starting:
            for program in brokers:
                starting.start_soon(start, program)
        if problems:
            raise problems[0]
        for group in self._plan.groups:
            await self.leader(group.name)
        await self._proven()

    async def _proven(self) -> None:
        """Wait until each group keeps a quorum if any one member is lost."""
        in_doubt: dict[str, list[str]] = {}
        with trio.move_on_after(DOUBT_S):
            async with Client(self.nameservers) as client:
                while True:
                    in_doubt = await members_in_doubt(client, self._plan)
                    if not in_doubt:
                        return
                    await trio.sleep(_LOOK_S)
        for group, names in in_doubt.items():
            _log.warning("%s of %s neither votes nor counts yet", ", ".join(names), group)

    async def _run(
        self, program: Program, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        ended = self._ended[program.name] = trio.Event()
        try:
            await self._local.run_once(program, task_status=task_status)
        finally:
            ended.set()

    async def _end(self) -> None:
        for process in self._local.running.values():
            process.kill()
        with trio.CancelScope(shield=True):
            for name in list(self._guards):
                await self._dismiss_guard(name)

    def _process(self, name: str) -> trio.Process:
        process = self._local.running.get(name)
        if process is None:
            raise NotRunning(name, self.running)
        return process

    def _works(self, name: str) -> bool:
        return name in self._local.running and name not in self._guards

    async def _dismiss_guard(self, name: str) -> None:
        guard = self._guards.pop(name, None)
        if guard is not None and guard.stdin is not None:
            with trio.CancelScope(shield=True):
                await guard.stdin.aclose()
                await guard.wait()


@asynccontextmanager
async def cluster(
    *, nodes: int = 3, groups: int = 1, directory: Path | None = None
) -> AsyncIterator[Cluster]:
    """Run a name server and groups of brokers on this machine during an `async with` block.

    The block begins when a leader of each group answers, and each group would keep a quorum if one
    member was lost. No process is left behind, however the block ends: the children end even if
    this process is killed.

    Args:
        nodes: the number of brokers in a group.
        groups: the number of groups.
        directory: keeps all files, also after the block; a later block with the same directory
            starts the same cluster again. A temporary directory when None.

    Raises:
        NoLeaderInTime: a group has no leader for 30 s.
        MessagingError: a process ended before it listened; the text has its last output.
        GroupDirectoryError: the directory is in use, or holds something else.
    """
    with ExitStack() as stack:
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="dledger-mq-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        group_directory = GroupDirectory(directory)
        group_directory.lock()
        stack.callback(group_directory.unlock)
        plan = group_directory.read_plan()
        if plan is None:
            (nameserver,) = free_addresses(1)
            plan = ClusterPlan(CLUSTER, nameserver, new_groups(groups, nodes))
        made = Cluster(group_directory, plan)
        async with Background(None) as background:
            try:
                await made._start(background.nursery)
                yield made
            finally:
                await made._end()
