"""`python -m bench request-costs`: the table of the costs of requests."""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from pathlib import Path

import click
import trio

from bench.costs.asker import Asker
from bench.costs.dearest import dearest_requests
from bench.costs.full_broker import FullBroker
from bench.costs.full_nameserver import FullNameServer, Routes, dearest_of_nameserver
from bench.costs.fullness import Fullness
from bench.costs.loop_holds import watched, without_collections
from broker.config import BrokerConfig
from broker.server import Broker, Surroundings, run_broker
from dledger.command_line.options import option
from dledger.free_ports import free_ports
from remoting.net.address import Address
from remoting.net.answering import failure_reply
from remoting.wire.codes import request_name
from remoting.wire.command import Command
from remoting.wire.frame import encode_command

# Longer than any request takes; only requests that wait take seconds.
_PATIENCE_S = 20.0

Holds = dict[str, float]


@click.command("request-costs")
@option("--json", "json_file", "Write the table here.", type=click.Path(path_type=Path))
@option(
    "--before",
    "A table that was written before, to print beside this one.",
    type=click.Path(exists=True, path_type=Path),
)
def request_costs(json_file: Path | None, before: Path | None) -> None:
    """Measure the longest hold of the event loop by each request code.

    The state of a broker and of a name server is filled to its limits, which takes a minute; each
    code is asked for what is dearest. Counted is the time that the thread had of a processor.
    """
    holds = trio.run(_of_broker) | _of_nameserver()
    past: Holds = {} if before is None else json.loads(before.read_text("utf-8"))
    for name, ms in holds.items():
        old = f"{past[name]:9.1f}" if name in past else " " * 9
        click.echo(f"{name:90} {old} {ms:9.1f} ms")
    if json_file is not None:
        json_file.write_text(json.dumps(holds, indent=1), "utf-8")


async def _of_broker() -> Holds:
    holds: Holds = {}
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            broker = await nursery.start(_run, Path(folder))
            full = FullBroker(broker, Fullness())
            await full.fill()
            with without_collections():
                for code, requests in dearest_requests(full).items():
                    for what, command in requests.items():
                        name = f"broker {int(code):6} {request_name(code)}: {what}"
                        holds[name] = await _longest_ms(broker, command)
            nursery.cancel_scope.cancel()
    return holds


async def _run(folder: Path, task_status: trio.TaskStatus[Broker]) -> None:
    listen_port, log_port = free_ports(2)
    config = BrokerConfig(
        group="broker-a",
        node_id="n0",
        peers={"n0": f"127.0.0.1:{log_port}"},
        listen=Address("127.0.0.1", listen_port),
        directory=folder,
    )
    async with trio.open_nursery() as nursery:
        surroundings = Surroundings(
            wall_clock_ms=lambda: 1_700_000_000_000,
            process_id=1,
            hour_of=lambda _time_ms: 12,
            used_percent=lambda _directory: 10.0,
        )
        run = partial(run_broker, config, surroundings, lambda _line, /, **_: None)
        broker: Broker = await nursery.start(run)
        async for change in broker.node.role_changes():
            if change.ready:
                break
        broker.requests.follow_role()
        task_status.started(broker)
        await trio.sleep_forever()


async def _longest_ms(broker: Broker, command: Command) -> float:
    asker = Asker(7)
    await trio.sleep(0.02)
    with watched() as holds:
        broker.requests.on_commands(asker, [command])  # type: ignore[arg-type]
        with trio.move_on_after(_PATIENCE_S):
            await asker.until(1)
        await trio.lowlevel.checkpoint()
    return 1000 * holds.longest


def _of_nameserver() -> Holds:
    holds: Holds = {}
    full = FullNameServer(Routes())
    with without_collections():
        for code, requests in dearest_of_nameserver(full).items():
            for what, command in requests.items():
                name = f"name server {int(code):6} {request_name(code)}: {what}"
                holds[name] = _longest_step_ms(full, command)
        began = time.thread_time()
        full.table.connection_closed(full.asker.speaker.connection, 0.0)
        holds["name server: all brokers close"] = 1000 * (time.thread_time() - began)
    return holds


def _longest_step_ms(full: FullNameServer, command: Command) -> float:
    began = time.thread_time()
    longest = 0.0
    answer = full.processors.table.handle(full.asker, command)
    assert answer is not None
    reply = answer if isinstance(answer, Command) else None
    while reply is None and not isinstance(answer, Command):
        try:
            next(answer)
        except StopIteration as ended:
            reply = ended.value
        except Exception as error:
            reply = failure_reply(command, error)
        now = time.thread_time()
        longest, began = max(longest, now - began), now
    if reply is not None:
        encode_command(reply)
    return 1000 * max(longest, time.thread_time() - began)
