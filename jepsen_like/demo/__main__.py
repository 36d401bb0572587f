"""`make demo`: start a group, send, kill its leader, consume everything, replay it into Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import pyarrow.compute
import pyarrow.parquet
import trio
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dledger.command_line.options import option
from dledger.entry import HEADER_BYTES
from dledger.store.scan import scan_folder
from dledger_mq import Admin
from jepsen_like.demo.cluster import POLL_S, Cluster, DemoFailed, running_cluster
from jepsen_like.demo.traffic import TOPIC, Tally, send, two_readers

# Every acknowledged message must be consumed in this time after the last one was sent.
CONSUME_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Result:
    tally: Tally
    killed: str = ""
    new_leader: str = ""
    failover_ms: int = -1
    logs_identical: bool = False
    spark_rows: int = 0
    spark_missing: int = -1

    @property
    def ok(self) -> bool:
        return (
            self.tally.lost == 0
            and not self.tally.failed
            and bool(self.tally.acknowledged)
            and self.logs_identical
            and self.spark_missing == 0
        )

    def line(self) -> str:
        """Return the last line, for scripts."""
        tally = self.tally
        return (
            f"demo: sent={tally.sent} acknowledged={len(tally.acknowledged)} "
            f"consumed={len(tally.consumed)} lost={tally.lost} duplicated={tally.duplicated} "
            f"failover_ms={self.failover_ms} "
            f"logs_identical={'yes' if self.logs_identical else 'no'} spark_rows={self.spark_rows}"
        )


async def run_demo(folder: Path, messages: int, console: Console) -> Result:
    """Run the demo. Raises DemoFailed, or TooSlowError if a wait never ends."""
    result = Result(Tally())
    console.print("starting a name server and three brokers, each a process of its own")
    async with running_cluster(folder) as cluster:
        console.print(f"{await cluster.leader()} leads; name server at {cluster.nameserver}")
        async with Admin(nameservers=[cluster.nameserver]) as admin:
            await admin.create_topic(TOPIC, queues=8)
        with Progress(console=console) as progress:
            await _traffic(cluster, messages, result, progress)
        console.print("waiting until the restarted node has caught up")
        await cluster.wait_caught_up()
        result.new_leader = await cluster.leader()
        await cluster.stop()
        nodes = [node.name for node in cluster.plan.nodes]
        folders = [cluster.log_folder(node) for node in nodes]
        result.logs_identical = committed_bytes_are_identical(folders)
        console.print(f"logs of {', '.join(nodes)} compared byte for byte; replaying into Spark")
        await _replay(folders[nodes.index(result.new_leader)], folder / "tables", result)
    return result


async def _traffic(cluster: Cluster, messages: int, result: Result, progress: Progress) -> None:
    tally = result.tally
    bars = {name: progress.add_task(name, total=messages) for name in ("acknowledged", "consumed")}

    async def draw() -> None:
        while True:
            progress.update(bars["acknowledged"], completed=len(tally.acknowledged))
            progress.update(bars["consumed"], completed=len(tally.consumed))
            await trio.sleep(POLL_S)

    killed = trio.Event()

    async def kill_the_leader() -> None:
        while len(tally.acknowledged) < messages // 2:
            await trio.sleep(POLL_S)
        result.killed = await cluster.leader()
        killed_at = trio.current_time()
        cluster.kill(result.killed)
        killed.set()
        progress.console.print(f"kill -9 of the leader, {result.killed}; it is started again")
        while len(tally.acknowledged) + len(tally.failed) < messages:
            await trio.sleep(POLL_S)
        result.failover_ms = tally.failover_ms(killed_at)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(draw)
        async with two_readers(cluster.nameserver, tally):
            async with trio.open_nursery() as work:
                work.start_soon(kill_the_leader)
                await send(cluster.nameserver, messages, tally, killed)
            with trio.move_on_after(CONSUME_TIMEOUT_S):
                while tally.lost:
                    await trio.sleep(POLL_S)
            await trio.sleep(2 * POLL_S)
        nursery.cancel_scope.cancel()


async def _replay(log: Path, tables: Path, result: Result) -> None:
    """Write the Spark tables in a separate process, and count the messages that they lack."""
    ended = await trio.run_process(
        [
            *(sys.executable, "-m", "dledger_spark", "replay"),
            *("--path", str(log), "--out", str(tables)),
        ],
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if ended.returncode:
        raise DemoFailed(f"the replay failed: {ended.stdout.decode().strip().splitlines()[-1]}")
    table = pyarrow.parquet.read_table(tables / "messages", columns=["topic", "keys"])
    keys = table.filter(pyarrow.compute.equal(table["topic"], TOPIC))["keys"].to_pylist()
    result.spark_rows = len(keys)
    result.spark_missing = len(result.tally.acknowledged - set(keys))


def committed_bytes_are_identical(folders: Sequence[Path]) -> bool:
    """Return whether the committed parts of the logs are equal, byte for byte."""
    scans = [scan_folder(str(folder)) for folder in folders]
    limit = min(scan.committed for scan in scans)
    if limit < 0:
        return False
    ends = []
    for scan in scans:
        last = next(p.header for p in scan.entries(check_sums=False) if p.header.index == limit)
        ends.append(last.pos + HEADER_BYTES + last.body_size)
    if len(set(ends)) != 1 or any(scan.verify() for scan in scans):
        return False
    return all(
        _same(tuple(segment.path for segment in segments), segments[0].start, ends[0])
        for segments in zip(*(scan.segments for scan in scans), strict=False)
    )


def _same(paths: tuple[str, ...], start: int, end: int) -> bool:
    """Return whether the files are equal up to the position `end` of the log."""
    contents = {Path(path).read_bytes()[: max(0, end - start)] for path in paths}
    return len(contents) == 1


def _summary(result: Result) -> Table:
    tally = result.tally
    table = Table(title="what happened", show_header=False)
    rows = {
        "messages sent, acknowledged": f"{tally.sent}, {len(tally.acknowledged)}",
        "consumed by the group of two": f"{len(tally.consumed)}",
        "acknowledged and lost": f"{tally.lost}",
        "delivered more than once": f"{tally.duplicated} deliveries",
        "leader killed, leader at the end": f"{result.killed}, {result.new_leader}",
        "kill to the next acknowledgement": f"{result.failover_ms} ms",
        "the three logs, byte for byte": "equal" if result.logs_identical else "DIFFERENT",
        "rows in the Spark table": f"{result.spark_rows}",
    }
    if tally.failed:
        rows["not acknowledged"] = f"{len(tally.failed)}: {next(iter(tally.failed.values()))}"
    for name, value in rows.items():
        table.add_row(name, value)
    return table


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--messages", default=20_000, show_default=True, type=click.IntRange(2))
@option(
    "--dir",
    "folder",
    "Where logs and tables go; emptied first.",
    type=click.Path(path_type=Path),
    default=Path("build/demo"),
)
def main(messages: int, folder: Path) -> None:
    """Run the whole project once: group, traffic, killed leader, consumers, Spark tables.

    Exit code 0 only if nothing acknowledged was lost, the three logs are equal byte for byte,
    and the Spark table holds every acknowledged message.
    """
    console = Console()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        result = trio.run(run_demo, folder, messages, console)
    except* (DemoFailed, trio.TooSlowError) as group:
        for error in group.exceptions:
            console.print(f"demo failed: {str(error) or 'something took too long'}; see {folder}")
        sys.exit(1)
    console.print(_summary(result))
    print(result.line())
    sys.exit(0 if result.ok else 1)


if __name__ == "__main__":
    main()
