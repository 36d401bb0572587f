"""Measures the cost of an idle group, and of a start with a long log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import trio

import dledger
from bench.dledger_member import GROUP
from bench.filler import NODE_ID
from bench.one_run import end
from bench.options import COUNT, SECONDS, folder_option, json_option, markdown_option
from bench.process_figures import memory, ran_s
from bench.report import Report, show_tables, tell
from bench.summary import Rows
from bench.system import TOTAL, python_module
from bench.toolchain import BUILD
from dledger.client.group_client import GroupUnreachable
from dledger.free_ports import free_ports
from dledger.local_group import serve_command

MEMBERS, RESTARTS = 3, 5
BODY_BYTES = 256
# Elections and connections of a new group are over.
SETTLED_S = 5.0
PATIENCE_S = 600.0
_POLL_S = 0.005
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
HOW = (
    "`dledger serve` on this machine, its modules compiled before, as an installer does. "
    "A restart: from the start of the process until the member has opened its log and answers, and "
    "until it leads or follows and has applied everything; in brackets the processor time of the "
    "process by then, which does not count the others of the machine. The log is in a group of one "
    "that ended without warning. A machine that folds adds up the bytes of each entry. Memory: all "
    "that is resident, and what of it is no file's."
)

Condition = Callable[[dict[str, object]], bool]


class Reached(NamedTuple):
    """Seconds from the start of a process to a condition, and its processor time until then."""

    elapsed_s: float
    processor_s: float

    def __str__(self) -> str:
        return f"{self.elapsed_s:.2f} s ({self.processor_s:.2f})"


def main_rows(
    folder: Path, idle_s: float, log_bytes: int, body_bytes: int
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a name and its figure."""
    _compile_modules()
    yield from idle_rows(folder / "idle", idle_s)
    for size in (log_bytes // 4, log_bytes):
        yield from log_rows(folder / "log", size, body_bytes)


def idle_rows(folder: Path, idle_s: float) -> Iterator[tuple[str, str]]:
    peers = _peers(MEMBERS)
    began = time.monotonic()
    processes = {each: _serve(each, peers, folder) for each in peers}
    try:
        leader = trio.run(_leader, peers)
        yield "three new members, start to ready leader", f"{time.monotonic() - began:.2f} s"
        time.sleep(SETTLED_S)
        for node_id, process in processes.items():
            resident, anonymous = memory(process.pid)
            role = "leader" if node_id == leader else "follower"
            yield f"memory of a {role} at rest", f"{resident:.0f} MiB, {anonymous:.0f} its own"
        pids = [process.pid for process in processes.values()]
        before = [ran_s(pid) for pid in pids]
        time.sleep(idle_s)
        used = sum(ran_s(pid) for pid in pids) - sum(before)
        share = used / idle_s * 100
        yield f"three idle members, {idle_s:g} s", f"{share:.1f} % of one core, all together"
        follower = next(each for each in peers if each != leader)
        answers: list[Reached] = []
        caught_up: list[Reached] = []
        for _ in range(RESTARTS):
            end([processes[follower]])
            began = time.monotonic()
            processes[follower] = _serve(follower, peers, folder)
            applied = _number(trio.run(_status_of, peers, leader), "applied")
            pid = processes[follower].pid
            answers.append(trio.run(_until, peers, follower, _answers, began, pid))
            there = _has_applied(applied)
            caught_up.append(trio.run(_until, peers, follower, there, began, pid))
        yield "restart of an idle follower, until it answers", _median(answers)
        yield "restart of an idle follower, until it knows all", _median(caught_up)
    finally:
        end(list(processes.values()))


def log_rows(folder: Path, log_bytes: int, body_bytes: int) -> Iterator[tuple[str, str]]:
    name = f"log of {log_bytes / 2**20:,.0f} MiB, bodies of {body_bytes} bytes"
    peers = _peers(1)
    folder.mkdir(exist_ok=True)
    began = time.monotonic()
    fill = [str(folder / NODE_ID), peers[NODE_ID], str(log_bytes), str(body_bytes)]
    subprocess.run([*python_module("filler"), *fill], check=True)
    took_s = time.monotonic() - began
    yield f"{name}: appended, in a group of one", f"{took_s:.1f} s"
    served = serve_command(GROUP, NODE_ID, peers, folder / NODE_ID)
    words = [TOTAL, NODE_ID, json.dumps(peers), str(folder / NODE_ID)]
    folding = [*python_module("serving_member"), *words]
    for state, command in (
        ("in the page cache", served),
        ("not in the page cache", served),
        ("a machine that folds", folding),
    ):
        if state.startswith("not"):
            _forget_pages(folder)
        began = time.monotonic()
        process = _start(NODE_ID, command, folder)
        try:
            answers = trio.run(_until, peers, NODE_ID, _answers, began, process.pid)
            ready = trio.run(_until, peers, NODE_ID, _has_all, began, process.pid)
            yield f"{name}, {state}: until it answers, until it serves", f"{answers}, {ready}"
            resident, anonymous = memory(process.pid)
            yield f"{name}, {state}: memory", f"{resident:.0f} MiB, {anonymous:.0f} its own"
        finally:
            end([process])


def _median(reached: list[Reached]) -> str:
    all_elapsed_s = [each.elapsed_s for each in reached]
    middle = Reached(median(all_elapsed_s), median(each.processor_s for each in reached))
    return f"{middle}, {min(all_elapsed_s):.2f} to {max(all_elapsed_s):.2f} s"


def _peers(count: int) -> dict[str, str]:
    return {f"n{each}": f"127.0.0.1:{port}" for each, port in enumerate(free_ports(count))}


def _compile_modules() -> None:
    """Compile the modules ahead, as an installer does."""
    command = [sys.executable, "-m", "dledger", "--help"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=_environment())


def _environment() -> dict[str, str]:
    """Return the environment without switches that prevent compiled modules."""
    kept = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
    return kept | {"PYTHONPYCACHEPREFIX": str(BUILD.absolute() / "compiled")}


def _serve(node_id: str, peers: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    return _start(node_id, serve_command(GROUP, node_id, peers, folder / node_id), folder)


def _start(node_id: str, command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{node_id}.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=_environment()
        )


def _forget_pages(folder: Path) -> None:
    """Drop the files from the page cache; they are on the disk already."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


# --- asking a member --------------------------------------------------------------------------


def _number(status: dict[str, object], name: str) -> int:
    value = status[name]
    return value if isinstance(value, int) else -1


def _answers(_: dict[str, object]) -> bool:
    return True


def _has_applied(index: int) -> Condition:
    return lambda status: status["leader"] is not None and _number(status, "applied") >= index


def _has_all(status: dict[str, object]) -> bool:
    return status["ready"] is True and status["applied"] == status["last_index"]


async def _status_of(peers: Mapping[str, str], node_id: str) -> dict[str, object]:
    return await dledger.GroupClient(GROUP, peers).status(node_id)


async def _until(
    peers: Mapping[str, str], node_id: str, condition: Condition, began: float, pid: int
) -> Reached:
    """Wait until the member's status meets the condition."""
    client = dledger.GroupClient(GROUP, peers)
    while True:
        try:
            if condition(await client.status(node_id)):
                return Reached(time.monotonic() - began, ran_s(pid))
        except (GroupUnreachable, OSError, trio.BrokenResourceError) as error:
            if time.monotonic() - began > PATIENCE_S:
                raise click.ClickException(f"{node_id} does not come up: {error}") from None
        await trio.sleep(_POLL_S)


async def _leader(peers: Mapping[str, str]) -> str:
    client = dledger.GroupClient(GROUP, peers)
    deadline = trio.current_time() + PATIENCE_S
    while trio.current_time() < deadline:
        leader = await client.ready_leader()
        if leader is not None:
            return leader
        await trio.sleep(_POLL_S)
    raise click.ClickException(f"no member led within {PATIENCE_S:g} s")


# --- the command --------------------------------------------------------------------------------


@click.command()
@click.option("--idle-seconds", "idle_s", default=30.0, show_default=True, type=SECONDS)
@click.option("--log-mib", default=1024, show_default=True, type=click.IntRange(4))
@click.option("--body-bytes", default=BODY_BYTES, show_default=True, type=COUNT)
@folder_option
@json_option("figure")
@markdown_option("table")
def footprint(
    idle_s: float,
    log_mib: int,
    body_bytes: int,
    folder: Path,
    kept: Path | None,
    page: Path | None,
) -> None:
    """Measure start, recovery, memory, and what three idle members use."""
    cells: list[list[str]] = []
    report = Report(folder)
    with report.run_folder() as base:
        for what, figure in main_rows(base, idle_s, log_mib * 2**20, body_bytes):
            cells.append([what, figure])
            tell(f"{what}: {figure}")
    tables = [Rows("start, memory and rest", ["what", "figure"], cells)]
    show_tables(tables, HOW)
    report.keep(kept, {"figures": dict(cells)})
    report.write_page(page, [HOW], tables)
