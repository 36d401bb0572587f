"""Lose a leader while Java clients use every feature: `make client-losses`.

For each fault a new group is started. Each client keeps each feature under a steady load of its
own, all at once, with its own default settings, and the leader's process is killed, frozen for
longer than an election and continued, or killed like the next leader after it. What was
acknowledged is compared with what came.

    .venv/bin/python tests/clients/losses.py
    .venv/bin/python tests/clients/losses.py --faults frozen --clients java5 --features orders,pops

Exits with 1 if an acknowledged message was lost, or a feature did what it must not: the lines below
the table name all of that. Needs Maven and a JDK.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.clients.client_script import Failed
from tests.clients.gaps import freeze, kill, now_ms, seconds
from tests.clients.java_process import JavaProcesses
from tests.clients.local_cluster import UP, LocalCluster
from tests.clients.loss_tally import LossTally, Promise, tally
from tests.clients.run import BUILD
from tests.clients.toolchains import JAVA_VERSIONS, TITLES, Client, Toolchains, install

# Two Java processes start, and twenty clients in them; repeats come after a poll of routes.
FLOW_S = 120
# A load drains for 100 s by itself, and its clients end.
END_S = 240
LOOK_S = 0.2
# By then the first leader is back, and has the log.
BETWEEN_DEATHS_S = 12
# So many faults of one feature are shown.
SHOWN_FAULTS = 5


class Feature(NamedTuple):
    """A feature under load.

    Attributes:
        title: for the table.
        load: the method of `java/`.
        clients: which have it.
        promises: what it promises besides that nothing is lost and nothing comes early.
    """

    title: str
    load: str
    clients: tuple[Client, ...] = ("java4", "java5")
    promises: tuple[Promise, ...] = ()


FEATURES: dict[str, Feature] = {
    "sends": Feature("send, push consumer", "Loads.sends"),
    "batches": Feature("batches of five", "Loads.batches"),
    "orders": Feature("in order, two consumers", "Loads.orders", promises=("order",)),
    "delays": Feature("delay levels", "Loads.delays"),
    "timers": Feature("any time", "LoadsOfVersion5.timers", ("java5",)),
    "transactions": Feature("transactions", "Loads.transactions", promises=("permission",)),
    "pops": Feature("POP, two consumers", "LoadsOfVersion5.pops", ("java5",)),
    "retries": Feature("repeats and dead letters", "Loads.retries"),
    "broadcasts": Feature("broadcast to two", "Loads.broadcasts"),
    "restarts": Feature(
        "consumers that end and begin", "Loads.restarts", promises=("last gets nothing",)
    ),
    "offsets": Feature("commits of offsets", "Loads.offsets"),
}


def kill_leader(cluster: LocalCluster, options: argparse.Namespace) -> None:
    kill(cluster.leader().pid, options)


def freeze_leader(cluster: LocalCluster, options: argparse.Namespace) -> None:
    freeze(cluster.leader().pid, options)


def kill_two_leaders(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """The second one has passed clients on to the first, and then to itself."""
    kill_leader(cluster, options)
    time.sleep(BETWEEN_DEATHS_S)
    kill_leader(cluster, options)


FAULTS: dict[str, Callable[[LocalCluster, argparse.Namespace], None]] = {
    "killed": kill_leader,
    "frozen": freeze_leader,
    "killed twice": kill_two_leaders,
}


@dataclass
class Load:
    """A feature of a client at work."""

    client: Client
    feature: Feature
    journal: Path
    ended: Future[str]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.feature.title}, {TITLES[self.client]}"

    def lines(self) -> list[str]:
        """The whole lines of its journal."""
        if not self.journal.exists():
            return []
        return self.journal.read_text(errors="replace").split("\n")[:-1]


class Row(NamedTuple):
    """A line of the table."""

    load: Load
    fault: str
    result: LossTally


def main() -> int:
    options = read_options()
    toolchains, missing = install(BUILD)
    clients = [client for client in options.clients if client in toolchains]
    for client in options.clients:
        if client in missing:
            print(f"not driven: {TITLES[client]}: {missing[client]}")
    if not clients:
        return 1
    folder = Path(tempfile.mkdtemp(prefix="losses-", dir=BUILD))
    print(f"files of this run: {folder}", flush=True)
    rows: list[Row] = []
    failures = 0
    for fault in options.faults:
        for number in range(options.rounds):
            place = folder / f"{fault.replace(' ', '-')}-{number}"
            place.mkdir()
            try:
                rows += lose_leader(fault, place, clients, toolchains, options)
            except Failed as error:
                print(f"failed: {fault}: {error}", flush=True)
                failures += 1
    show(rows)
    failures += sum(bool(row.result.lost or row.result.faults) for row in rows)
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


def read_options() -> argparse.Namespace:
    def listed(known: list[str]) -> Callable[[str], list[str]]:
        def read(text: str) -> list[str]:
            words = text.split(",")
            unknown = [word for word in words if word not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
            return words

        return read

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", type=listed(list(JAVA_VERSIONS)), default=list(JAVA_VERSIONS))
    parser.add_argument("--faults", type=listed(list(FAULTS)), default=list(FAULTS))
    parser.add_argument("--features", type=listed(list(FEATURES)), default=list(FEATURES))
    parser.add_argument("--rounds", type=int, default=1, help="of each fault")
    parser.add_argument("--more", default="", help="more arguments for `dledger-mq up`")
    parser.add_argument("--after", type=float, default=10, help="seconds of load before the fault")
    parser.add_argument("--seconds", type=float, default=40, help="of load after the fault began")
    parser.add_argument("--frozen", type=float, default=10, help="seconds that a freeze lasts")
    return parser.parse_args()


def lose_leader(
    fault: str,
    folder: Path,
    clients: list[Client],
    toolchains: Toolchains,
    options: argparse.Namespace,
) -> list[Row]:
    """Have all features live through one fault; what each of them did.

    Raises:
        Failed: the group did not start, or a load did not, or it ended by itself.
    """
    with (
        LocalCluster(folder, f"{UP} {options.more}") as cluster,
        JavaProcesses(toolchains, folder, cluster.names) as java,
        ThreadPoolExecutor(len(FEATURES) * len(clients)) as pool,
    ):
        loads: list[Load] = []
        for client in clients:
            process = java.of(client, "losses")
            for name in options.features:
                feature = FEATURES[name]
                if client in feature.clients:
                    journal = folder / f"{client}-{name}.journal"
                    words = ("load", feature.load, f"{name}-{client}", str(journal))
                    until_end = FLOW_S + options.after + options.seconds + END_S
                    ended = pool.submit(process.ask, words, until_end)
                    loads.append(Load(client, feature, journal, ended))
        try:
            wait_until_all_flow(loads)
            time.sleep(options.after)
            fault_ms = now_ms()
            print(f"{fault}, with {len(loads)} loads", flush=True)
            (folder / "fault").write_text(f"{fault} at {fault_ms}\n")
            until = time.monotonic() + options.seconds
            FAULTS[fault](cluster, options)
            time.sleep(max(until - time.monotonic(), 0))
            end_ms = now_ms()
        finally:
            for client in clients:
                java.of(client, "losses").ask(("stop",), FLOW_S)
        for load in loads:
            load.ended.result()
        return [
            Row(load, fault, tally(load.lines(), load.feature.promises, fault_ms, end_ms))
            for load in loads
        ]


def wait_until_all_flow(loads: list[Load]) -> None:
    """Wait until each load has had something consumed.

    Raises:
        Failed: one of them has not, in time, or has ended.
    """
    deadline = time.monotonic() + FLOW_S
    for load in loads:
        while not any(line.startswith("took ") for line in load.lines()):
            if load.ended.done():
                raise Failed(f"{load.name}: {load.ended.exception() or 'ended'}")
            if time.monotonic() > deadline:
                raise Failed(f"{load.name}: nothing came in {FLOW_S} s")
            time.sleep(LOOK_S)


HEADING = """\
| feature | client | leader | acknowledged | failed attempts | delivered | lost | stored twice | delivered twice | gap of sends, s | gap of deliveries, s | longest wait, s |
|---|---|---|---|---|---|---|---|---|---|---|---|"""  # noqa: E501


def show(rows: list[Row]) -> None:
    """Print the table, and below it what must not be."""
    print(HEADING)
    for load, fault, result in sorted(rows, key=lambda row: (row.load.name, row.fault)):
        cells = (
            load.feature.title,
            TITLES[load.client],
            fault,
            result.acknowledged,
            result.refused,
            result.delivered,
            result.lost,
            result.stored_twice,
            result.delivered_twice,
            seconds(result.send_gap),
            seconds(result.consume_gap),
            f"{result.longest_wait_ms / 1000:.1f}",
        )
        print(f"| {' | '.join(str(cell) for cell in cells)} |")
    for load, fault, result in rows:
        if result.lost:
            print(f"{load.name}, {fault}: {result.lost} lost; see {load.journal}")
        if result.faults:
            print(f"{load.name}, {fault}: {len(result.faults)} faults; see {load.journal}")
        for words in result.faults[:SHOWN_FAULTS]:
            print(f"    {words}")


if __name__ == "__main__":
    sys.exit(main())
