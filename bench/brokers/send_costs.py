"""Measures what a send costs three brokers: functions, calls, processor time."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import click
import trio

from bench.brokers.asking import make_topics
from bench.brokers.bench import meter_of, middle
from bench.brokers.frames import connected
from bench.brokers.group import BrokerGroup
from bench.brokers.ours import OURS
from bench.brokers.puller import pull_all
from bench.brokers.sender import Senders, fill
from bench.brokers.traveller import travel
from bench.counted_calls import CountedCalls, calls_table, package_of, regular
from bench.options import COUNT, SECONDS, folder_option, json_option, markdown_option
from bench.place import make_place
from bench.report import Report, show_tables, tell
from bench.summary import Rows
from broker.config import BrokerConfig
from broker.server import Broker, Surroundings, run_broker
from dledger.command_line.options import option
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.net.address import parse_address

BODY = bytes(1024)
_TOPIC, _QUEUES = "SendCosts", 4
_SETTLED_S = 1.5
PACKAGES = ("remoting", "broker", "dledger")
OTHERS = "other"
SENDERS = (1, 64)
_RATE = 2000
_FILLED_BYTES, _FILLED_AT_ONCE = 256, 100
HOW = (
    "Calls: three brokers in one process and one sender in another thread; counted are Python "
    "functions, and a function counts if it runs in every second send at least. Processor time: "
    "a process a broker; a message takes what all three use, divided by all messages. Senders "
    "share one connection, and each sends its next message of 1 KB when its last one was answered."
)


async def calls_of_a_send(folder: Path, sends: int) -> dict[tuple[str, str], float]:
    """Count the calls of lone sends to three brokers in this process, by file and function."""
    calls = CountedCalls()
    place = make_place(folder)
    brokers: list[Broker] = []
    async with trio.open_nursery() as nursery:
        for node_id, address in place.peers.items():
            config = BrokerConfig(
                group="send-costs",
                node_id=node_id,
                peers=place.inner,
                listen=parse_address(address),
                directory=folder / node_id,
            )
            around = Surroundings(lambda: time.time_ns() // 1_000_000, 1)
            brokers.append(
                await nursery.start(run_broker, config, around, lambda _line, /, **_: None)
            )
        # Each broker begins to serve by itself, which has no common event.
        while not (  # noqa: ASYNC110
            leading := [one for one in brokers if one.requests.led_term is not None]
        ):
            await trio.sleep(0.05)
        address = place.peers[leading[0].config.node_id]
        await trio.to_thread.run_sync(make_topics, address, [_TOPIC], _QUEUES)
        await trio.sleep(_SETTLED_S)

        def send() -> None:
            senders.send(1, requests=sends)

        with connected(address) as connection:
            senders = Senders(connection, _TOPIC, _QUEUES, BODY)
            await trio.to_thread.run_sync(send)
            with calls.counting():
                await trio.to_thread.run_sync(send)
        nursery.cancel_scope.cancel()
    return calls.each(sends)


def _shown_package(file: str) -> str:
    package = package_of(file)
    return package if package in PACKAGES else OTHERS


def send_rows(group: BrokerGroup, measured_s: float) -> list[list[str]]:
    rows: list[list[str]] = []
    address = group.leader_address()
    make_topics(address, [_TOPIC], _QUEUES)
    for number in SENDERS:
        with connected(address) as connection:
            senders = Senders(connection, _TOPIC, _QUEUES, BODY)
            senders.send(number, for_s=1.0)
            meter = meter_of(group)
            sent = senders.send(number, for_s=measured_s)
            (used,) = meter.each("a send", sent.requests)
        rate = sent.requests / sent.took_s
        cells = [f"{rate:,.0f} a second", f"{sent.median_ms:.2f} ms", f"{used.value:,.0f} us"]
        rows.append([f"{number} sender{'s'[: number > 1]} of 1 KB", *cells])
    return rows


def travel_row(group: BrokerGroup, measured_s: float) -> list[str]:
    make_topics(group.leader_address(), ["Travel"], _QUEUES)
    meter = meter_of(group)
    found = travel(group.leader_address(), "Travel", _QUEUES, _RATE, measured_s)
    name = f"end to end at {_RATE:,} a second, light clients"
    (used,) = meter.each(name, found.messages)
    return [name, "", f"{found.percentile_ms(50):.2f} ms", f"{used.value:,.0f} us"]


def pulls_row(group: BrokerGroup, backlog: int) -> list[str]:
    make_topics(group.leader_address(), ["Pulled"], 2 * _QUEUES)
    batch = encode_batch_body([BatchMessage(bytes(_FILLED_BYTES))] * _FILLED_AT_ONCE)
    fill(group.leader_address(), "Pulled", 2 * _QUEUES, batch, backlog // _FILLED_AT_ONCE)
    name = "catch-up of a light client, 256 B"
    took, used = [], []
    for _ in range(3):
        meter = meter_of(group)
        took.append(pull_all(group.leader_address(), "Pulled", 2 * _QUEUES, backlog))
        used += meter.each(name, backlog)
    rate = backlog / statistics.median(took)
    return [name, f"{rate:,.0f} a second", "", f"{middle(used).value:.2f} us"]


@click.command("send-costs")
@option("--sends", "Sends whose calls are counted.", default=500, type=COUNT)
@option("--seconds", "measured_s", "Of each rate.", default=4.0, type=SECONDS)
@option("--backlog", "Messages of the catch-up.", default=200_000, type=COUNT)
@option("--list", "listed", "Print each function with its calls a send.", is_flag=True)
@folder_option
@json_option("figure")
@markdown_option("tables")
def send_costs(
    sends: int,
    measured_s: float,
    backlog: int,
    listed: bool,
    folder: Path,
    kept: Path | None,
    page: Path | None,
) -> None:
    """Measure what a send costs three brokers: calls, processor time."""
    report = Report(folder)
    with report.run_folder() as base:
        tell("counting calls")
        calls = regular(trio.run(calls_of_a_send, base / "calls", sends))
        tell("starting three brokers")
        with BrokerGroup(OURS, base / "processes") as group:
            tell("sending")
            rates = send_rows(group, measured_s)
            tell("end to end")
            rates.append(travel_row(group, measured_s))
            tell("pulling")
            rates.append(pulls_row(group, backlog))
    counted = {}
    for package in (*PACKAGES, OTHERS):
        mine = {name: count for name, count in calls.items() if _shown_package(name[0]) == package}
        counted[package] = [len(mine), len({file for file, _ in mine}), round(sum(mine.values()))]
    tables = [
        Rows(
            "a lone send, three brokers",
            ["what", "functions", "files", "calls"],
            [[package, *map(str, numbers)] for package, numbers in counted.items()],
        ),
        Rows(
            "processor time of three brokers",
            ["what", "rate", "median", "a message"],
            rates,
        ),
    ]
    if listed:
        tables.append(calls_table(calls, "a send"))
    show_tables(tables, HOW)
    report.keep(kept, {"lone send": counted, "rates": rates})
    report.write_page(page, [HOW], tables)
