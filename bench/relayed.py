"""`python -m bench.relayed`: the cost of a send that a follower passes on to the leader."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
import trio

from bench.mq_group import START_TIMEOUT_S, mq_group
from bench.options import COUNT, SECONDS, new_folder_option
from bench.plan import PlanInvalid, numbers
from bench.report import show_tables
from bench.summary import Rows, percentile
from dledger.command_line.options import option
from remoting.net.client import RemotingClient
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_SEND = 310
_RUNTIME_INFO = 28
_TOPIC = "relayed"
COLUMNS = ["in flight", "way", "sends/s", "of direct", "p50 ms", "p99 ms"]


@dataclass
class Times:
    """Attributes:
    rates: answered sends a second, for each round.
    latencies_s: of each send, all rounds together.
    """

    rates: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)


async def _leader(client: RemotingClient, members: list[str]) -> str:
    with trio.move_on_after(START_TIMEOUT_S):
        while True:
            for address in members:
                try:
                    told = await client.request(address, Command(_RUNTIME_INFO, {}))
                except RemotingError:
                    continue  # it starts
                if b'"dledgerRole":"leader"' in told.body and (await _send(client, address)):
                    return address
            await trio.sleep(0.1)
    raise click.ClickException("the group has no leader")


async def _send(client: RemotingClient, address: str, body: bytes = b"") -> bool:
    fields = {
        **{"a": "bench", "b": _TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0"},
        **{"g": "0", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"},
    }
    reply = await client.request(address, Command(_SEND, fields, body))
    return reply.code == ResponseCode.SUCCESS


async def _load(address: str, body: bytes, in_flight: int, measured_s: float, times: Times) -> None:
    """Keep `in_flight` sends in flight on one connection."""
    latencies_s: list[float] = []
    async with trio.open_nursery() as nursery:
        client = RemotingClient(nursery)

        async def send() -> None:
            while True:
                began = time.perf_counter()
                if not await _send(client, address, body):
                    raise click.ClickException(f"{address} refused a send")
                latencies_s.append(time.perf_counter() - began)

        for _ in range(in_flight):
            nursery.start_soon(send)
        await trio.sleep(measured_s / 4)
        latencies_s.clear()
        began = time.perf_counter()
        await trio.sleep(measured_s)
        times.rates.append(len(latencies_s) / (time.perf_counter() - began))
        times.latencies_s += latencies_s
        nursery.cancel_scope.cancel()


async def _measure(
    ways: dict[str, str], body: bytes, in_flight: list[int], rounds: int, measured_s: float
) -> dict[int, dict[str, Times]]:
    measured = {each: {way: Times() for way in ways} for each in in_flight}
    for _ in range(rounds):
        for each, by_way in measured.items():
            for way, times in by_way.items():
                await _load(ways[way], body, each, measured_s, times)
    return measured


async def _run(
    folder: Path, body: bytes, in_flight: list[int], rounds: int, measured_s: float
) -> None:
    with mq_group(folder) as group:
        async with trio.open_nursery() as nursery:
            leader = await _leader(RemotingClient(nursery), group.members)
            nursery.cancel_scope.cancel()
        # The leader of members that share a port leaves it to the others.
        ways = {"direct": leader, "relayed": group.address}
        measured = await _measure(ways, body, in_flight, rounds, measured_s)
    cells = []
    for each, by_way in measured.items():
        for way, times in by_way.items():
            rate = statistics.median(times.rates)
            of_direct = rate / statistics.median(by_way["direct"].rates)
            ms = [f"{1000 * percentile(times.latencies_s, share):.2f}" for share in (50, 99)]
            cells.append([str(each), way, f"{rate:,.0f}", f"{of_direct:.2f}", *ms])
    title = f"sends of {len(body)} B, {rounds} rounds of {measured_s:g} s"
    show_tables([Rows(title, COLUMNS, cells)])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@option("--in-flight", "Sends at a time.", default="1,16,256")
@option("--body-bytes", "Of each message.", default=1024, type=COUNT)
@option("--rounds", "Of both ways, one after the other.", default=5, type=COUNT)
@option("--seconds", "measured_s", "Of each measurement.", default=2.0, type=SECONDS)
@new_folder_option
def main(
    in_flight: str, body_bytes: int, rounds: int, measured_s: float, folder: Path | None
) -> None:
    """Send to the leader directly and by a follower, with the same client, in one group of three.

    The members are real processes that share one port, as `dledger-mq up` starts them.
    """
    try:
        sizes = numbers(in_flight)
    except PlanInvalid as error:
        raise click.UsageError(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="relayed-", dir=folder or Path.cwd()) as made:
        trio.run(_run, Path(made) / "group", os.urandom(body_bytes), sizes, rounds, measured_s)


if __name__ == "__main__":
    main()
