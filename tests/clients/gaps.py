"""Measure how long clients written by others wait when a leader is lost.

For each fault a new group is started; a sender and a push consumer of each client run together
under steady load, each client on a topic of its own, and the leader's process is killed, frozen
(and continued later), or ended. The table gives, for each client, the longest gap between two
acknowledged sends and between two consumed messages, and counts what was lost or came twice.

    .venv/bin/python tests/clients/gaps.py
    .venv/bin/python tests/clients/gaps.py --faults frozen --clients java4,java5
    .venv/bin/python tests/clients/gaps.py --more="--groups 3"

Exits with 1 if an acknowledged message was lost, or a client's program ended by itself.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.clients.client_script import ClientScript, Failed
from tests.clients.gap_tally import Gap, Tally, tally
from tests.clients.local_cluster import UP, LocalCluster
from tests.clients.run import BUILD
from tests.clients.scenarios import QUEUES
from tests.clients.toolchains import TITLES, Client, Toolchains, install

# ali-ons shares out a fresh group's queues after up to 10 s, and a Java client starts slowly.
FLOW_S = 90
# What was stored must be consumed so long after the last send: longer than a poll of routes.
DRAIN_S = 90


@dataclass
class Pair:
    """A sender and a consumer of one client."""

    client: Client
    sender: ClientScript
    consumer: ClientScript


def main() -> int:
    options = read_options()
    toolchains, missing = install(BUILD)
    for client, why in missing.items():
        print(f"not measured: {TITLES[client]}: {why}")
    clients = [client for client in options.clients if client in toolchains]
    folder = Path(tempfile.mkdtemp(prefix="gaps-", dir=BUILD))
    print(f"files of this run: {folder}")
    failures = 0
    print(HEADING)
    for fault in options.faults:
        for number in range(options.rounds):
            place = folder / f"{fault}-{number}"
            place.mkdir()
            try:
                results = measure(fault, place, clients, toolchains, options)
            except Failed as error:
                print(f"failed: {error}", flush=True)
                failures += 1
                continue
            for client, result in results:
                print(row(client, fault, result), flush=True)
                failures += result.lost > 0
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
    parser.add_argument("--clients", type=listed(list(TITLES)), default=list(TITLES))
    parser.add_argument("--faults", type=listed(list(FAULTS)), default=list(FAULTS))
    parser.add_argument("--rounds", type=int, default=1, help="of each fault")
    parser.add_argument(
        "--up",
        default=UP,
        help="the command that starts the group, with {python}, {dir} and {names} for this "
        "interpreter, its folder and the name server's address (%(default)s)",
    )
    parser.add_argument("--more", default="", help="more arguments for that command")
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between two sends")
    parser.add_argument("--after", type=float, default=5, help="seconds of load before the fault")
    parser.add_argument("--seconds", type=float, default=70, help="of load after the fault began")
    parser.add_argument("--frozen", type=float, default=30, help="seconds that a freeze lasts")
    return parser.parse_args()


def measure(
    fault: str,
    folder: Path,
    clients: list[Client],
    toolchains: Toolchains,
    options: argparse.Namespace,
) -> list[tuple[Client, Tally]]:
    """Have all clients live through one fault; what each of them felt.

    Raises:
        Failed: the group did not start, or a program ended by itself or never got a message.
    """
    with LocalCluster(folder, f"{options.up} {options.more}") as cluster, ExitStack() as stack:
        pairs = [
            start(client, cluster, folder, toolchains, options.pause, stack) for client in clients
        ]
        wait_until_all_flow(pairs)
        time.sleep(options.after)
        leader = cluster.leader()
        fault_ms = now_ms()
        (folder / "fault").write_text(f"{leader.node} {fault} at {fault_ms}\n")
        until = time.monotonic() + options.seconds
        FAULTS[fault](leader.pid, options)
        time.sleep(max(until - time.monotonic(), 0))
        end_ms = now_ms()
        for pair in pairs:
            fail_if_crashed(pair)
            pair.sender.kill()
        drain(pairs)
        return [
            (pair.client, tally(pair.sender.words(), pair.consumer.words(), fault_ms, end_ms))
            for pair in pairs
        ]


def start(
    client: Client,
    cluster: LocalCluster,
    folder: Path,
    toolchains: Toolchains,
    pause: float,
    stack: ExitStack,
) -> Pair:
    """Start a client's consumer, then its sender."""
    place = folder / client
    place.mkdir()
    topic = f"gaps-{client}"
    cluster.command("topic", "create", topic, "--queues", str(QUEUES))
    where = (cluster.names, topic)
    consumer = stack.enter_context(
        ClientScript(
            toolchains[client], place, "consume", *where, f"{topic}-readers", topic, "--steady"
        )
    )
    consumer.wait_until_ready()
    sender = stack.enter_context(
        ClientScript(
            toolchains[client], place, "send", *where, topic, "steady", "--pause", str(pause)
        )
    )
    return Pair(client, sender, consumer)


def wait_until_all_flow(pairs: list[Pair]) -> None:
    """Wait until every client has consumed something.

    Raises:
        Failed: one of them has not, in time, or a program ended.
    """
    deadline = time.monotonic() + FLOW_S
    for pair in pairs:
        while not any(line.startswith("took ") for line in pair.consumer.words()):
            fail_if_crashed(pair)
            if time.monotonic() > deadline:
                raise Failed(f"{TITLES[pair.client]} consumed nothing in {FLOW_S} s")
            time.sleep(0.2)


def fail_if_crashed(pair: Pair) -> None:
    """Both programs of a client run until they are killed.

    Raises:
        Failed: one has ended.
    """
    crash = pair.sender.crash() or pair.consumer.crash()
    if crash is not None:
        raise Failed(f"{TITLES[pair.client]}: {crash}")


def drain(pairs: list[Pair]) -> None:
    """Wait until every consumer has all that its sender had acknowledged, or the time is over."""
    deadline = time.monotonic() + DRAIN_S
    for pair in pairs:
        sent = pair.sender.words()
        while tally(sent, pair.consumer.words(), 0, 0).lost and time.monotonic() < deadline:
            time.sleep(1)
    time.sleep(1)  # what comes twice may come last


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def kill(pid: int, _options: argparse.Namespace) -> None:
    os.kill(pid, signal.SIGKILL)


def freeze(pid: int, options: argparse.Namespace) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(options.frozen)
    finally:
        os.kill(pid, signal.SIGCONT)


def end(pid: int, _options: argparse.Namespace) -> None:
    os.kill(pid, signal.SIGTERM)


FAULTS: dict[str, Callable[[int, argparse.Namespace], None]] = {
    "killed": kill,
    "frozen": freeze,
    "ended": end,
}

HEADING = """\
| client | leader | gap of sends, s | gap of consumption, s | acknowledged | failed attempts | lost | stored twice | delivered twice |
|---|---|---|---|---|---|---|---|---|"""  # noqa: E501


def row(client: Client, fault: str, result: Tally) -> str:
    """A line of the table."""
    cells = (
        TITLES[client],
        fault,
        seconds(result.send_gap),
        seconds(result.consume_gap),
        result.acknowledged,
        result.refused,
        result.lost,
        result.stored_twice,
        result.delivered_twice,
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def seconds(gap: Gap) -> str:
    """A gap as the table shows it: "> 70.0" if nothing came before the end."""
    return f"{'> ' if gap.is_open else ''}{gap.ms / 1000:.1f}"


if __name__ == "__main__":
    sys.exit(main())
