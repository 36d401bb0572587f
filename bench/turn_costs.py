"""Measures what an append costs three members: functions, calls, system calls, processor time."""

from __future__ import annotations

import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import click
import trio
import trio.testing

import dledger
from bench.counted_calls import CountedCalls, calls_table, package_of, regular
from bench.one_run import RunFailed, end, first_result, last_complaint, output, start
from bench.options import COUNT, folder_option, json_option, markdown_option
from bench.peers.in_process import members
from bench.place import make_place
from bench.process_figures import ran_s
from bench.report import Report, show_tables, tell
from bench.summary import Rows
from bench.system import python_module
from bench.workload import APPEND, APPEND_MANY, MANY, SUBMIT, Workload
from dledger.command_line.options import option

BODY = bytes(256)
# Elections, first connections and the first files are behind it.
SETTLED_S = 1.5
# Fewer system calls an append are housekeeping: heartbeats, snapshots, alarms.
SELDOM_SHARE = 0.05
PATIENCE_S = 60.0
PACKAGE = "dledger"
HOW = (
    "Calls: three members in one process, one append at a time; counted are Python functions, and "
    "a function counts if it runs in every second append at least. System calls and processor "
    "time: a process a member; a sync of the leader is an append. The floor: what trio takes to "
    "put a task to sleep and to wake it, with as many tasks as there are appends in flight."
)


async def calls_of_an_append(folder: Path, appends: int) -> dict[tuple[str, str], float]:
    """Count the calls of lone appends at a leader and its followers in this process, by file and
    function.
    """
    calls = CountedCalls()
    peers = make_place(folder).peers
    async with AsyncExitStack() as stack:
        nodes = []
        for node_id in peers:
            config = dledger.NodeConfig(
                group="turn-costs", node_id=node_id, peers=peers, data_dir=folder / node_id
            )
            opened = dledger.open_node(config, dledger.LogOnly())
            nodes.append(await stack.enter_async_context(opened))
        leader = await _ready_leader(nodes)
        await trio.sleep(SETTLED_S)
        for _ in range(appends):
            await leader.append(BODY)
        with calls.counting():
            for _ in range(appends):
                await leader.append(BODY)
    return calls.each(appends)


async def _ready_leader(nodes: Sequence[dledger.Node]) -> dledger.Node:
    async for change in nodes[0].role_changes():
        for node in nodes:
            if change.leader == node.config.node_id:
                await node.wait_applied(0)
                return node
    raise AssertionError


class ProcessorTime(NamedTuple):
    """Microseconds of processor time that members used for an entry, at a rate of entries a
    second.
    """

    rate: float
    leader_us: float
    follower_us: float


class SystemCalls(NamedTuple):
    """System calls of an append, by name."""

    leader: dict[str, float]
    follower: dict[str, float]


class _Group:
    """Three members, each a process, while the leader makes a load.

    Attributes:
        pids: the leader's first.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], leader: int) -> None:
        self._leader = processes[leader]
        followers = [process.pid for process in processes if process is not self._leader]
        self.pids = [self._leader.pid, *followers]

    def rate(self) -> float:
        """Return the entries a second once all were measured."""
        return first_result([self._leader], PATIENCE_S).entries_per_s


@contextmanager
def _under_load(folder: Path, workload: Workload) -> Iterator[_Group]:
    """Run three members, and hand them out in the midst of the load."""
    place = make_place(folder)
    complaints = folder / "complaints"
    with complaints.open("wb") as errors:
        processes = start(members(python_module("dledger_member"), place, workload), errors)
        try:
            leader = _leader(processes)
            time.sleep(workload.warm_up_s)
            yield _Group(processes, leader)
        except RunFailed as error:
            raise click.ClickException(f"{error}{last_complaint(complaints)}") from None
        finally:
            end(processes)


def processor_time(folder: Path, workload: Workload) -> ProcessorTime:
    """Measure the processor time of all threads of the members, also in the kernel."""
    with _under_load(folder, workload) as group:
        before, began = list(map(ran_s, group.pids)), time.monotonic()
        time.sleep(workload.measured_s / 2)
        elapsed_s = time.monotonic() - began
        after = list(map(ran_s, group.pids))
        rate = group.rate()
    us = [(b - a) / elapsed_s / rate * 1e6 for a, b in zip(before, after, strict=True)]
    return ProcessorTime(rate, us[0], sum(us[1:]) / len(us[1:]))


def system_calls(folder: Path, workload: Workload) -> SystemCalls:
    """Count the system calls of lone appends by strace."""
    strace = [shutil.which("strace") or "strace", "-f", "-qq", "-c", "-o"]
    with _under_load(folder, workload) as group:
        files = {folder / f"strace-{pid}": pid for pid in group.pids}
        tracers = [
            subprocess.Popen([*strace, str(file), "-p", str(pid)]) for file, pid in files.items()
        ]
        time.sleep(workload.measured_s / 2)
        for tracer in tracers:
            tracer.send_signal(signal.SIGINT)
        for tracer in tracers:
            tracer.wait()
    leader, follower, _ = (dict(_counts(file.read_text())) for file in files)
    return an_append(leader, follower)


def _counts(table: str) -> Iterator[tuple[str, float]]:
    for line in table.splitlines()[2:]:
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            yield words[-1], float(words[3])


def an_append(leader: dict[str, float], follower: dict[str, float]) -> SystemCalls:
    """Divide by the syncs of the leader: one append at a time has one each."""
    appends = leader.get("fdatasync", 0.0) + leader.get("fsync", 0.0)
    if not appends:
        raise click.ClickException("the leader made no sync while it was traced")
    return SystemCalls(
        *(
            {call: n / appends for call, n in counts.items() if n / appends >= SELDOM_SHARE}
            for counts in (leader, follower)
        )
    )


def _leader(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for the process that leads; return its number."""
    with selectors.DefaultSelector() as selector:
        for number, process in enumerate(processes):
            selector.register(output(process), selectors.EVENT_READ, number)
        for key, _ in selector.select(PATIENCE_S):
            if output(processes[key.data]).readline():
                return int(key.data)
    raise RunFailed("no member led")


async def floor_us(tasks: int, measured_s: float = 1.0) -> float:
    """Microseconds in which trio puts a task to sleep and wakes it, all tasks at once."""
    lot, woken, stops = trio.lowlevel.ParkingLot(), 0, trio.current_time() + measured_s

    async def sleep() -> None:
        nonlocal woken
        while True:
            await lot.park()
            woken += 1

    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(sleep)
        await trio.testing.wait_all_tasks_blocked()
        began = time.perf_counter()
        while trio.current_time() < stops:
            lot.unpark_all()
            await trio.lowlevel.checkpoint()
        elapsed_s = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    return elapsed_s / woken * 1_000_000


LOADS = (
    ("one `append` at a time", Workload(1, call=APPEND)),
    ("`append`, 64 in flight", Workload(64, call=APPEND)),
    ("`append`, 1,000 in flight", Workload(1_000, call=APPEND)),
    ("`submit`, 1,000 in flight", Workload(1_000, call=SUBMIT)),
    (f"`append_many` of {MANY}, 1,000 in flight", Workload(1_024, call=APPEND_MANY, batch=MANY)),
)


@click.command("turn-costs")
@option("--appends", "Appends whose calls are counted.", default=500, type=COUNT)
@option("--list", "listed", "Print each function with its calls an append.", is_flag=True)
@folder_option
@json_option("figure")
@markdown_option("tables")
def turn_costs(
    appends: int, listed: bool, folder: Path, kept: Path | None, page: Path | None
) -> None:
    """Measure what an append costs three members: calls, system calls, processor time."""
    report = Report(folder)
    with report.run_folder() as base:
        tell("counting calls")
        calls = trio.run(calls_of_an_append, base / "calls", appends)
        own = {name: count for name, count in calls.items() if package_of(name[0]) == PACKAGE}
        needed = regular(own)
        counted = {
            "functions": len(needed),
            "files": len({file for file, _ in needed}),
            "calls": round(sum(own.values())),
            "calls in libraries": round(sum(calls.values()) - sum(own.values())),
        }
        loads = {}
        for number, (name, workload) in enumerate(LOADS):
            tell(name)
            loads[name] = processor_time(base / f"load-{number}", workload)
        traced = None
        if shutil.which("strace"):
            tell("counting system calls")
            traced = system_calls(base / "traced", LOADS[0][1])
        else:
            report.note("system calls were not counted: strace is not installed")
        floor = trio.run(floor_us, LOADS[2][1].in_flight)
    tables = [
        Rows(
            "a lone append, three members",
            ["what", "figure"],
            [[k, str(v)] for k, v in counted.items()],
        ),
        Rows(
            "processor time an entry",
            ["load", "entries a second", "leader us", "follower us"],
            [
                [name, f"{rate:,.0f}", f"{leader_us:.1f}", f"{follower_us:.1f}"]
                for name, (rate, leader_us, follower_us) in loads.items()
            ],
        ),
        _floor_rows(floor, loads[LOADS[2][0]]),
    ]
    if traced is not None:
        names = sorted(traced.leader.keys() | traced.follower.keys())
        cells = [[name, *(f"{of.get(name, 0.0):.1f}" for of in traced)] for name in names]
        tables.append(Rows("system calls of a lone append", ["call", "leader", "follower"], cells))
    if listed:
        tables.append(calls_table(needed, "an append"))
    show_tables(tables, HOW)
    report.keep(
        kept,
        {
            "lone append": counted,
            "floor_us": floor,
            "loads": {k: v._asdict() for k, v in loads.items()},
        },
    )
    report.write_page(page, [HOW], tables)


def _floor_rows(floor: float, load: ProcessorTime) -> Rows:
    took_us = 1_000_000 / load.rate
    return Rows(
        "what trio takes of an `append`, 1,000 in flight",
        ["what", "figure"],
        [
            ["a task put to sleep and woken", f"{floor:.2f} us"],
            ["an entry", f"{took_us:.2f} us"],
            ["ratio", f"{took_us / floor:.2f}"],
        ],
    )
