"""Measures what an append costs three members: functions, calls, system calls, processor time."""

from __future__ import annotations

import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

import click
import trio
import trio.testing

import dledger
from bench.one_run import end
from bench.options import folder_option, json_option, markdown_option
from bench.place import make_place
from bench.report import Report, show_tables, tell
from bench.summary import Rows
from bench.system import member_words, python_module
from bench.workload import APPEND, APPEND_MANY, MANY, SUBMIT, Measured, Workload
from dledger.command_line.options import option

BODY = bytes(256)
# Elections, first connections and the first files are behind it.
SETTLED_S = 1.5
# What comes in fewer appends than one of so many is housekeeping: heartbeats, snapshots, alarms.
SELDOM = 2
SELDOM_SHARE = 0.05
PATIENCE_S = 60.0
PACKAGE = f"{Path(dledger.__file__).parent}/"
HOW = (
    "Calls: three members in one process, one append at a time; counted are Python functions, and "
    "a function counts if it runs in every second append at least. System calls and processor "
    "time: a process a member; a sync of the leader is an append. The floor: what trio takes to "
    "put a task to sleep and to wake it, with as many tasks as there are appends in flight."
)


class Calls(NamedTuple):
    """Calls an append, by function: its file in the package, or none for other packages."""

    of_dledger: dict[tuple[str, str], float]
    of_others: float

    @property
    def regular(self) -> dict[tuple[str, str], float]:
        """Those of functions that most appends need."""
        return {name: a_time for name, a_time in self.of_dledger.items() if a_time * SELDOM >= 1}


async def calls_of_an_append(folder: Path, appends: int) -> Calls:
    """Count the calls of lone appends at a leader and its followers in this process."""
    counts: Counter[tuple[str, str]] = Counter()
    others = 0

    def note(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal others
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE):
                counts[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1
            else:
                others += 1

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
        sys.setprofile(note)
        try:
            for _ in range(appends):
                await leader.append(BODY)
        finally:
            sys.setprofile(None)
    return Calls({name: count / appends for name, count in counts.items()}, others / appends)


async def _ready_leader(nodes: Sequence[dledger.Node]) -> dledger.Node:
    async for change in nodes[0].role_changes():
        for node in nodes:
            if change.leader == node.config.node_id:
                await node.wait_applied(0)
                return node
    raise AssertionError


class Used(NamedTuple):
    """What members used while the leader made a load.

    Attributes:
        rate: entries a second.
        processor_us: of the leader and of a follower, an entry.
        system_calls: of the leader and of a follower, an entry, by name; empty if not counted.
    """

    rate: float
    processor_us: tuple[float, float]
    system_calls: tuple[dict[str, float], dict[str, float]]


def used_by(folder: Path, workload: Workload, *, traced: bool = False) -> Used:
    """Run three members, each a process, and look at them in the midst of the load."""
    place = make_place(folder)
    processes = [
        subprocess.Popen(
            [
                *python_module("dledger_member"),
                *member_words(place, node_id),
                workload.to_json(),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for node_id in place.peers
    ]
    try:
        leader = _leader(processes)
        time.sleep(workload.warm_up_s)
        looked = _traced if traced else _processor_us
        found = looked([process.pid for process in processes], folder, workload.measured_s / 2)
        result = _result(processes[leader])
    finally:
        end(processes)
    followers = [one for number, one in enumerate(found) if number != leader]
    if traced:
        return Used(result.entries_per_s, (0.0, 0.0), _an_append(found[leader], followers[0]))
    a_second = [one["us"] / result.entries_per_s for one in (found[leader], *followers)]
    mean = sum(a_second[1:]) / len(followers)
    return Used(result.entries_per_s, (a_second[0], mean), ({}, {}))


def _processor_us(pids: Sequence[int], _folder: Path, measured_s: float) -> list[dict[str, float]]:
    """Microseconds of processor time that each used in a second of wall time."""
    before, began = [_ran_ns(pid) for pid in pids], time.monotonic()
    time.sleep(measured_s)
    elapsed_s = time.monotonic() - began
    after = [_ran_ns(pid) for pid in pids]
    return [{"us": (b - a) / 1000 / elapsed_s} for a, b in zip(before, after, strict=True)]


def _ran_ns(pid: int) -> int:
    """Processor time of all threads of a process, also in the kernel."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


def _traced(pids: Sequence[int], folder: Path, measured_s: float) -> list[dict[str, float]]:
    """System calls of each process by name, as strace counts them."""
    strace = [shutil.which("strace") or "strace", "-f", "-qq", "-c", "-o"]
    files = [folder / f"strace-{pid}" for pid in pids]
    tracers = [
        subprocess.Popen([*strace, str(file), "-p", str(pid)])
        for pid, file in zip(pids, files, strict=True)
    ]
    time.sleep(measured_s)
    for tracer in tracers:
        tracer.send_signal(signal.SIGINT)
    for tracer in tracers:
        tracer.wait()
    return [dict(_counts(file.read_text())) for file in files]


def _counts(table: str) -> Iterator[tuple[str, float]]:
    for line in table.splitlines()[2:]:
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            yield words[-1], float(words[3])


def _an_append(
    leader: dict[str, float], follower: dict[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Divide by the syncs of the leader: one append at a time has one each."""
    appends = leader.get("fdatasync", 0.0) + leader.get("fsync", 0.0)
    if not appends:
        raise click.ClickException("the leader made no sync while it was traced")
    leads, follows = (
        {name: count / appends for name, count in counts.items() if count / appends >= SELDOM_SHARE}
        for counts in (leader, follower)
    )
    return leads, follows


def _leader(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for the process that leads; return its number."""
    with selectors.DefaultSelector() as selector:
        for number, process in enumerate(processes):
            selector.register(_output(process), selectors.EVENT_READ, number)
        for key, _ in selector.select(PATIENCE_S):
            if _output(processes[key.data]).readline():
                return int(key.data)
    raise click.ClickException("no member led")


def _result(process: subprocess.Popen[bytes]) -> Measured:
    for line in _output(process):
        if (result := Measured.from_line(line.decode())) is not None:
            return result
    raise click.ClickException("the leader ended before it had measured anything")


def _output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


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
@option("--appends", "Appends whose calls are counted.", default=500, type=click.IntRange(1))
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
        regular = calls.regular
        counted = {
            "functions": len(regular),
            "files": len({file for file, _ in regular}),
            "calls": round(sum(calls.of_dledger.values())),
            "calls in libraries": round(calls.of_others),
        }
        loads = {}
        for number, (name, workload) in enumerate(LOADS):
            tell(name)
            loads[name] = used_by(base / f"load-{number}", workload)
        traced = None
        if shutil.which("strace"):
            tell("counting system calls")
            traced = used_by(base / "traced", LOADS[0][1], traced=True).system_calls
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
                [name, f"{u.rate:,.0f}", *(f"{us:.1f}" for us in u.processor_us)]
                for name, u in loads.items()
            ],
        ),
        _floor_rows(floor, loads[LOADS[2][0]]),
    ]
    if traced is not None:
        names = sorted(traced[0].keys() | traced[1].keys())
        cells = [[name, *(f"{of.get(name, 0.0):.1f}" for of in traced)] for name in names]
        tables.append(Rows("system calls of a lone append", ["call", "leader", "follower"], cells))
    if listed:
        ordered = sorted(regular.items(), key=lambda item: -item[1])
        cells = [[f"{file} {name}", f"{count:.2f}"] for (file, name), count in ordered]
        tables.append(Rows("calls by function", ["function", "an append"], cells))
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


def _floor_rows(floor: float, load: Used) -> Rows:
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
