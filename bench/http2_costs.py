"""Measures what a call costs a server of gRPC, and what an open stream does, beside `grpc.aio`."""

from __future__ import annotations

import importlib.metadata
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from bench.http2_client import BenchClient, requests
from bench.http2_member import OPEN, UNARY
from bench.one_run import RunFailed, end, output, start
from bench.options import COUNT, folder_option, json_option, markdown_option
from bench.process_figures import memory, ran_s
from bench.report import Report, show_tables, tell
from bench.summary import Rows
from bench.system import python_module
from dledger.command_line.options import option

BODY = bytes(1024)
IN_FLIGHT = 64
WARM_UP_CALLS = 2000
STREAMS_A_CONNECTION = 500
OURS, PEER = "ours", "grpc"
HOW = (
    "One connection, 64 calls in flight, a body of 1 KiB, an answer of 120 bytes, the headers of "
    "RocketMQ's clients; processor time of the server's process. Its client writes requests that "
    "were made before. An idle stream has its headers answered, and a task that waits."
)


class Figures(NamedTuple):
    """What a server used.

    Attributes:
        plain_us: processor time of a call, its headers written as by C-core.
        huffman_us: the same, as by Java, Go and Node.
        rate: calls a second of the former.
        idle_kib: of memory for an idle stream.
    """

    plain_us: float
    huffman_us: float
    rate: float
    idle_kib: float


@contextmanager
def _server(kind: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Run a server; yields its process and its port."""
    with (folder / f"complaints-{kind}").open("wb") as errors:
        (process,) = processes = start([[*python_module("http2_member"), kind]], errors)
        try:
            line = output(process).readline()
            if not line:
                raise RunFailed(f"the server {kind} did not start: see {errors.name}")
            yield process.pid, int(line)
        finally:
            end(processes)


def _calls(pid: int, port: int, calls: int, is_huffman: bool) -> tuple[float, float]:
    """Return the processor time of a call in microseconds, and the calls a second."""
    made = requests(UNARY, BODY, WARM_UP_CALLS + calls, is_huffman)
    client = BenchClient(port)
    try:
        client.run(made[:WARM_UP_CALLS], IN_FLIGHT, 2)
        before, began = ran_s(pid), time.monotonic()
        client.run(made[WARM_UP_CALLS:], IN_FLIGHT, 2)
        return (ran_s(pid) - before) / calls * 1e6, calls / (time.monotonic() - began)
    finally:
        client.close()


def _idle_kib(pid: int, port: int, streams: int) -> float:
    before = memory(pid).resident
    made = requests(OPEN, None, STREAMS_A_CONNECTION, False)
    clients = [BenchClient(port) for _ in range(streams // STREAMS_A_CONNECTION)]
    try:
        for client in clients:
            client.run(made, STREAMS_A_CONNECTION, 1)
        opened = len(clients) * STREAMS_A_CONNECTION
        return (memory(pid).resident - before) * 1024 / opened
    finally:
        for client in clients:
            client.close()


def _measure(kind: str, folder: Path, calls: int, streams: int, rounds: int) -> Figures:
    with _server(kind, folder) as (pid, port):
        idle_kib = _idle_kib(pid, port, streams)
        plain = [_calls(pid, port, calls, False) for _ in range(rounds)]
        huffman = [_calls(pid, port, calls, True)[0] for _ in range(rounds)]
    plain_us, rates = zip(*plain, strict=True)
    median = statistics.median
    return Figures(median(plain_us), median(huffman), median(rates), idle_kib)


@click.command("http2-costs")
@option("--calls", "Calls of each round.", default=20_000, type=COUNT)
@option("--streams", "Idle streams.", default=10_000, type=click.IntRange(STREAMS_A_CONNECTION))
@option("--rounds", "Rounds, of which the median counts.", default=3, type=COUNT)
@folder_option
@json_option("figure")
@markdown_option("table")
def http2_costs(
    calls: int, streams: int, rounds: int, folder: Path, kept: Path | None, page: Path | None
) -> None:
    """Measure the processor time of a call of gRPC, beside grpc.aio where it is installed."""
    report = Report(folder)
    kinds = {OURS: "`proxy.http2`"}
    try:
        kinds[PEER] = f"`grpc.aio` {importlib.metadata.version('grpcio')}"
    except importlib.metadata.PackageNotFoundError:
        tell("grpcio is not installed: only our own server is measured")
    found = {}
    with report.run_folder() as base:
        for kind in kinds:
            tell(f"measuring {kind}")
            found[kind] = _measure(kind, base, calls, streams, rounds)
    rows = [
        [name, f"{used.plain_us:.0f} us", f"{used.huffman_us:.0f} us", f"{used.rate:,.0f}",
         f"{used.idle_kib:.1f} KiB"]
        for kind, name in kinds.items()
        if (used := found.get(kind)) is not None
    ]  # fmt: skip
    if PEER in found:
        ours, peer = found[OURS], found[PEER]
        shares = [f"{ours[at] / peer[at]:.2f}" for at in range(len(ours))]
        rows.append(["ours, by the peer's", *shares])
    columns = ["server", "a call", "with Huffman's code", "calls a second", "an idle stream"]
    tables = [Rows("a unary call", columns, rows)]
    show_tables(tables, " ".join([HOW, *report.notes]))
    report.keep(kept, {kind: used._asdict() for kind, used in found.items()})
    report.write_page(page, [HOW], tables)
