"""A name server and groups of brokers as processes of this machine: started, watched, ended."""

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from dledger_mq.clusters.group_directory import ClusterPlan, GroupDirectory, GroupPlan, NodePlan
from dledger_mq.errors import GroupDirectoryError, MessagingError

# A broker that is asked to end flushes and closes its files.
END_S: Final = 5.0

NAMESERVER: Final = "nameserver"

# The last output of a process is shown when it dies.
_LAST_WORDS_BYTES: Final = 2000

# A line of a child longer than this is cut.
_MAX_LINE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Program:
    """A process to run.

    Attributes:
        name: "nameserver", or a node's name.
        arguments: the command line after the interpreter.
        at_birth: more options, for its first start alone.
    """

    name: str
    arguments: tuple[str, ...]
    at_birth: tuple[str, ...] = ()

    def shown(self) -> str:
        """The command line, for a person to start it by hand."""
        return " ".join((sys.executable, *self.arguments))


def nameserver_program(address: str) -> Program:
    """The name server."""
    return Program(NAMESERVER, ("-m", "nameserver", "--listen", address))


def broker_program(
    directory: GroupDirectory, plan: ClusterPlan, group: GroupPlan, node: NodePlan
) -> Program:
    """One broker."""
    more: tuple[str, ...] = ()
    if group.address is not None:
        more += ("--listen-group", group.address, "--share-port")
    if group.preferred is not None:
        more += ("--prefer", group.preferred)
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
    """The processes of one directory.

    Children hold the end of a pipe as their standard input, and end when it closes: even if this
    process is killed, none is left behind.

    Args:
        directory: a locked directory.
        plan: its groups.
        say: shows a line to the user.
        restart_after_s: start a process that died again after so long; None leaves it.
    """

    def __init__(
        self,
        directory: GroupDirectory,
        plan: ClusterPlan,
        say: Callable[[str], object],
        restart_after_s: float | None = None,
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._say = say
        self._restart_after_s = restart_after_s
        self._running: dict[str, trio.Process] = {}
        self._started: set[str] = set()

    def programs(self) -> list[Program]:
        """Everything that is to run, the name server first."""
        return [
            nameserver_program(self._plan.nameserver),
            *(
                broker_program(self._directory, self._plan, group, node)
                for group in self._plan.groups
                for node in group.nodes
            ),
        ]

    @property
    def running(self) -> Mapping[str, trio.Process]:
        """The processes that run now, by name."""
        return self._running

    async def run_once(
        self, program: Program, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run a program to its end; it counts as started once it has printed its first line.

        Raises:
            MessagingError: it died before it printed a line.
        """
        if not await self._run(program, task_status):
            raise self._not_started(program)

    async def keep_running(
        self, program: Program, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run a program; it counts as started once it has printed its first line.

        Returns when it has died and is not to be started again.

        Raises:
            MessagingError: it died before it printed a line, or it was the last one that ran.
        """
        is_first = True
        while True:
            heard = await self._run(program, task_status if is_first else None)
            if not heard and is_first:
                raise self._not_started(program)
            is_first = False
            if self._restart_after_s is None:
                self._say(f"start it again with: {program.shown()}")
                if not self._running:
                    raise MessagingError("no process is left; start the command again")
                return
            await trio.sleep(self._restart_after_s)
            self._say(f"{program.name}: starting again")

    async def _run(self, program: Program, task_status: trio.TaskStatus[None] | None) -> bool:
        """Run a program once, to its end; return whether it printed anything."""
        heard = False
        at_birth = () if program.name in self._started else program.at_birth
        self._started.add(program.name)
        with self._directory.log_path(program.name).open("ab") as log:
            process = await trio.lowlevel.open_process(
                [sys.executable, *program.arguments, *at_birth, "--exit-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which ends its children
            )
        self._running[program.name] = process
        self._remember()
        try:
            async for line in _lines(process):
                self._say(line if program.name in line.split() else f"{program.name}: {line}")
                if not heard and task_status is not None:
                    task_status.started()
                heard = True
            await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)
            del self._running[program.name]
            self._remember()
        self._say(f"{program.name} (pid {process.pid}) died: {_cause(process.returncode)}")
        return heard

    def _remember(self) -> None:
        """Record the running processes."""
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
        """The last line of a program's log."""
        with self._directory.log_path(program.name).open("rb") as log:
            log.seek(0, 2)
            log.seek(max(log.tell() - _LAST_WORDS_BYTES, 0))
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"


async def _lines(process: trio.Process) -> AsyncIterator[str]:
    """The lines a process says, as they come."""
    if process.stdout is None:
        return
    rest = b""
    async for piece in process.stdout:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line[:_MAX_LINE_BYTES].decode("utf-8", "replace")
        rest = rest[-_MAX_LINE_BYTES:]


async def _end(process: trio.Process) -> None:
    """End a process: ask, wait, and kill it if it does not listen.

    The end of its input ends a broker at once. A signal would have it hand leadership over to
    another one, which is about to end as well.
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
    """Why a process ended, in words."""
    if return_code is not None and return_code < 0:
        return f"signal {signal.Signals(-return_code).name}"
    return f"exit code {return_code}"
