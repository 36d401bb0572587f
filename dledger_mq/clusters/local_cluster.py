"""Runs a name server and groups of brokers as processes of this machine."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from dledger_mq.clusters.certificate_folder import NAMESERVER
from dledger_mq.clusters.group_directory import ClusterPlan, GroupDirectory, GroupPlan, NodePlan
from dledger_mq.errors import GroupDirectoryError, MessagingError

# The name of the proxy's process.
PROXY: Final = "proxy"

# A broker flushes and closes its files before it ends.
END_S: Final = 5.0

# The end of a process's log is shown if it does not start.
_LAST_WORDS_BYTES: Final = 2000

# Longer lines of a child's output are cut.
_MAX_LINE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Program:
    """A process to run.

    Attributes:
        name: "nameserver", "proxy", or a node's name.
        arguments: the command line after the interpreter.
        at_birth: more options, for its first start only.
    """

    name: str
    arguments: tuple[str, ...]
    at_birth: tuple[str, ...] = ()


def nameserver_program(address: str, more: Sequence[str] = ()) -> Program:
    """Return the name server of a cluster; `more`: further options."""
    return Program(NAMESERVER, ("-m", "nameserver", "--listen", address, *more))


def proxy_program(address: str, plan: ClusterPlan, more: Sequence[str] = ()) -> Program:
    """Return the proxy of a cluster, for clients of RocketMQ 5; `more`: further options."""
    return Program(
        PROXY,
        (
            *("-m", "proxy", "--listen", address, "--nameservers", plan.nameserver),
            *more,
            *plan.proxy_options(),
        ),
    )


def broker_program(
    directory: GroupDirectory,
    plan: ClusterPlan,
    group: GroupPlan,
    node: NodePlan,
    more: Sequence[str] = (),
) -> Program:
    """Return one broker of a cluster; `more`: further options."""
    more = tuple(more)
    if group.address is not None:
        more += ("--listen-group", group.address, "--share-port")
    if group.preferred is not None:
        more += ("--prefer", group.preferred)
    more += plan.security_options(node.name)
    return Program(
        node.name,
        (
            *("-m", "broker"),
            *("--group", group.name),
            *("--node", node.name),
            *("--peers", group.peers),
            *("--listen", node.client_address),
            *("--nameservers", plan.nameserver),
            *("--dir", str(directory.node_path(node.name))),
            *("--cluster", plan.cluster),
            *more,
        ),
        at_birth=("--new",) if directory.is_unborn(group) else (),
    )


class LocalCluster:
    """The processes of one locked directory.

    The standard input of each child is a pipe from this process, and children end when it closes:
    no child is left behind, even if this process is killed. `say` shows a line to the user. A
    process that ended is started again after `restart_after_s`; None: never. `more`: options of
    all programs.
    """

    def __init__(
        self,
        directory: GroupDirectory,
        plan: ClusterPlan,
        say: Callable[[str], object],
        restart_after_s: float | None = None,
        more: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._say = say
        self._restart_after_s = restart_after_s
        self._more = more
        self._running: dict[str, trio.Process] = {}
        self._started: set[str] = set()

    def programs(self) -> list[Program]:
        """Return all programs of the plan, the name server first."""
        return [
            nameserver_program(
                self._plan.nameserver, (*self._more, *self._plan.security_options(NAMESERVER))
            ),
            *(
                broker_program(self._directory, self._plan, group, node, self._more)
                for group in self._plan.groups
                for node in group.nodes
            ),
            *(
                [proxy_program(self._plan.grpc, self._plan, self._more)]
                if self._plan.grpc is not None
                else []
            ),
        ]

    @property
    def running(self) -> Mapping[str, trio.Process]:
        return self._running

    async def run_once(
        self, program: Program, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run a program until it ends; it counts as started once it has printed its first line.

        Raises:
            MessagingError: it ended before it printed a line.
        """
        if not await self._run(program, task_status):
            raise self._not_started(program)

    async def keep_running(
        self, program: Program, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run a program; it counts as started once it has printed its first line.

        Returns when it has ended and is not to be started again.

        Raises:
            MessagingError: it ended before it printed a line, or it was the last one that ran.
        """
        is_first = True
        while True:
            heard = await self._run(program, task_status if is_first else None)
            if not heard and is_first:
                raise self._not_started(program)
            is_first = False
            if self._restart_after_s is None:
                command_line = " ".join((sys.executable, *program.arguments))
                self._say(f"start it again with: {command_line}")
                if not self._running:
                    raise MessagingError("no process is left; start the command again")
                return
            await trio.sleep(self._restart_after_s)
            self._say(f"{program.name}: starting again")

    async def _run(self, program: Program, task_status: trio.TaskStatus[None] | None) -> bool:
        """Run a program once, until it ends; return whether it printed anything."""
        heard = False
        at_birth = () if program.name in self._started else program.at_birth
        self._started.add(program.name)
        with self._directory.log_path(program.name).open("ab") as log:
            process = await trio.lowlevel.open_process(
                [sys.executable, *program.arguments, *at_birth, "--exit-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach only this process, which ends the child
            )
        self._running[program.name] = process
        self._write_pids()
        try:
            async for line in _lines(process):
                names_itself = program.name in line.split() or line.startswith("{")  # JSON
                self._say(line if names_itself else f"{program.name}: {line}")
                if not heard and task_status is not None:
                    task_status.started()
                heard = True
            await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
            del self._running[program.name]
            self._write_pids()
        self._say(f"{program.name} (pid {process.pid}) died: {_cause(process.returncode)}")
        return heard

    def _write_pids(self) -> None:
        try:
            self._directory.write(
                self._plan, {name: process.pid for name, process in self._running.items()}
            )
        except OSError as error:
            raise GroupDirectoryError(
                str(self._directory.path), f"it cannot be written ({error.strerror})"
            ) from None

    def _not_started(self, program: Program) -> MessagingError:
        return MessagingError(f"{program.name} did not start: {self._last_words(program)}")

    def _last_words(self, program: Program) -> str:
        with self._directory.log_path(program.name).open("rb") as log:
            log.seek(0, 2)
            log.seek(max(log.tell() - _LAST_WORDS_BYTES, 0))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"


async def _lines(process: trio.Process) -> AsyncIterator[str]:
    if process.stdout is None:
        return
    rest = b""
    async for piece in process.stdout:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line[:_MAX_LINE_BYTES].decode("utf-8", "replace")
        rest = rest[-_MAX_LINE_BYTES:]


async def _end(process: trio.Process) -> None:
    """End a process: close its input, then send SIGTERM, then SIGKILL.

    The end of its input ends a broker at once. After a signal it would first hand leadership over
    to another member, which is about to end as well.
    """
    if process.stdin is not None:
        await process.stdin.aclose()
    with trio.move_on_after(END_S):
        await process.wait()
    if process.returncode is None:
        process.terminate()
        with trio.move_on_after(END_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()


def _cause(return_code: int | None) -> str:
    if return_code is not None and return_code < 0:
        return f"signal {signal.Signals(-return_code).name}"
    return f"exit code {return_code}"
