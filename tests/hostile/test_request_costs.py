"""What requests cost by the size of the state: the table of all codes, at their dearest.

Counted are instructions and the bytes that are read of the log, never time: `python -m bench
request-costs` measures the time with a state at its limits.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trio.testing

from bench.costs.asker import Asker
from bench.costs.dearest import dearest_requests
from bench.costs.full_broker import FullBroker
from bench.costs.fullness import evenly_full
from bench.costs.loop_holds import Instructions, watched
from broker.server import Broker
from remoting.wire.command import Command
from tests.broker.one_broker import running_broker

# Four times as much of everything. Slices of lists are shorter than the smaller state.
FEW, MANY = 150, 600

# What a request may read of the log besides what it answers with: the properties of 64 messages.
MAX_READ_BYTES = 3 * 1024 * 1024

# What may grow: a dictionary that is copied, and what is waited for meanwhile.
FEW_INSTRUCTIONS = 1_000

# What grows up to a limit of its own, which is larger than these states.
BOUNDED = {
    "314: topics": "MAX_CLONED_OFFSETS, folded by one command",
}


class Cost(NamedTuple):
    """Of one request.

    Attributes:
        instructions: of the longest step that a task took for it.
        read_bytes: of the log, in all steps.
        reply_bytes: how long the reply's body is.
    """

    instructions: int
    read_bytes: int
    reply_bytes: int


class ReadBytes:
    """Counts what is read of a broker's log."""

    def __init__(self, broker: Broker) -> None:
        self.count = 0
        log = broker.parts.log
        read = log.read_bytes

        def counted(pos: int, size: int) -> bytes:
            self.count += size
            return read(pos, size)

        log.read_bytes = counted  # type: ignore[method-assign]


async def measured(broker: Broker, command: Command, read: ReadBytes) -> Cost:
    """Have one request answered."""
    asker, counter = Asker(7), Instructions()
    await trio.testing.wait_all_tasks_blocked()
    before = read.count
    with watched(lambda: counter.count) as holds, counter.counting():
        broker.requests.on_commands(asker, [command])  # type: ignore[arg-type]
        with trio.fail_after(30):
            await asker.until(1)
        await trio.lowlevel.checkpoint()
    assert asker.last is not None
    return Cost(int(holds.longest), read.count - before, len(asker.last.body))


async def costs_with(folder: Path, count: int) -> dict[str, Cost]:
    """What each request costs with a state of so many of everything."""
    async with running_broker(folder) as (broker, _nursery):
        full = FullBroker(broker, evenly_full(count))
        await full.fill()
        read = ReadBytes(broker)
        return {
            f"{code}: {what}": await measured(broker, command, read)
            for code, requests in dearest_requests(full).items()
            for what, command in requests.items()
        }


async def test_each_code_that_is_answered_has_a_dearest_request(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        table = dearest_requests(FullBroker(broker, evenly_full(1)))
        assert table.keys() == broker.requests.handlers.keys()
        assert [code for code, requests in table.items() if not requests] == []


async def test_no_request_holds_the_loop_by_the_size_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each step of work that is done in steps is seen by itself.
    monkeypatch.setattr("remoting.net.client_work.SLICE_SECONDS", 1e-9)
    monkeypatch.setattr("remoting.net.client_work.TURN_SECONDS", 0)
    few = await costs_with(tmp_path / "few", FEW)
    many = await costs_with(tmp_path / "many", MANY)
    grown = {
        name: (few[name], many[name])
        for name in few.keys() - BOUNDED
        if many[name].instructions > 1.5 * few[name].instructions + FEW_INSTRUCTIONS
    }
    for name, (small, large) in grown.items():
        print(f"{name}: {small} to {large}")
    assert grown == {}
    read = {
        name: one for name, one in many.items() if one.read_bytes > MAX_READ_BYTES + one.reply_bytes
    }
    assert read == {}
