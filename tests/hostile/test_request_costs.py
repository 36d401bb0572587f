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
from bench.costs.full_nameserver import FullNameServer, Routes, dearest_of_nameserver
from bench.costs.fullness import evenly_full
from bench.costs.loop_holds import Instructions, is_by_time, watched
from broker.server import Broker
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from tests.broker.one_broker import running_broker

# Four times as much of everything. Slices of lists are shorter than the smaller state.
FEW, MANY = 150, 600

# What a request may read of the log besides what it answers with: the properties of 64 messages,
# once to find them and once more before they are answered.
MAX_READ_BYTES = 6 * 1024 * 1024

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
        read_bytes: of the log, in all steps: see `ReadBytes`.
        reply_bytes: how long the reply's body is.
    """

    instructions: int
    read_bytes: int
    reply_bytes: int


class ReadBytes:
    """Counts what is read of a broker's log, except by tasks that look again and again."""

    def __init__(self, broker: Broker) -> None:
        self.count = 0
        log = broker.parts.log
        read = log.read_bytes

        def counted(pos: int, size: int) -> bytes:
            if not is_by_time(trio.lowlevel.current_task()):
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


@pytest.mark.long
async def test_no_request_holds_the_loop_by_the_size_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each step of work that is done in steps is seen by itself.
    monkeypatch.setattr("remoting.net.client_work.SLICE_S", 1e-9)
    monkeypatch.setattr("remoting.net.client_work.TURN_S", 0)
    grown: dict[str, tuple[Cost, Cost]] = {}
    # What a timer adds to one request now and then does not come twice.
    for attempt in ("first", "second"):
        few = await costs_with(tmp_path / attempt / "few", FEW)
        many = await costs_with(tmp_path / attempt / "many", MANY)
        found = {
            name: (few[name], many[name])
            for name in few.keys() - BOUNDED
            if many[name].instructions > 1.5 * few[name].instructions + FEW_INSTRUCTIONS
        }
        grown = {name: one for name, one in found.items() if attempt == "first" or name in grown}
        if not grown:
            break
    for name, (small, large) in grown.items():
        print(f"{name}: {small} to {large}")
    assert grown == {}
    read = {
        name: one for name, one in many.items() if one.read_bytes > MAX_READ_BYTES + one.reply_bytes
    }
    assert read == {}


def test_each_code_of_a_name_server_has_a_dearest_request() -> None:
    full = FullNameServer(Routes(brokers=2, topics=3, topics_of_broker=2))
    table = dearest_of_nameserver(full)
    assert sorted(table) == full.processors.table.codes()
    assert [code for code, requests in table.items() if not requests] == []


def nameserver_costs(routes: Routes) -> dict[str, int]:
    """The instructions of the longest step of each request, with so many routes."""
    full = FullNameServer(routes)
    costs: dict[str, int] = {}
    for code, requests in dearest_of_nameserver(full).items():
        for what, command in requests.items():
            steps = Instructions()
            longest = 0
            with steps.counting():
                answer = full.processors.table.handle(full.asker, command)
            longest = steps.count
            while answer is not None and not isinstance(answer, Command):
                before = steps.count
                with steps.counting():
                    try:
                        next(answer)
                    except (StopIteration, RemotingError):
                        answer = None
                longest = max(longest, steps.count - before)
            costs[f"{code}: {what}"] = longest
    with (closing_steps := Instructions()).counting():
        full.table.connection_closed(full.asker.speaker.connection, 0.0)
    costs["all brokers close"] = closing_steps.count
    return costs


def test_no_request_holds_a_name_server_by_the_number_of_topics() -> None:
    few = nameserver_costs(Routes(brokers=4, topics=750, topics_of_broker=375))
    many = nameserver_costs(Routes(brokers=4, topics=3_000, topics_of_broker=1_500))
    grown = {
        name: (few[name], many[name])
        for name in few
        if many[name] > 1.5 * few[name] + FEW_INSTRUCTIONS
    }
    assert grown == {}


def test_what_clients_ask_for_holds_a_name_server_no_longer_by_the_number_of_brokers() -> None:
    few = nameserver_costs(Routes(brokers=300, topics=30, topics_of_broker=15))
    many = nameserver_costs(Routes(brokers=1_200, topics=30, topics_of_broker=15))
    for name in ("105: brokers", "106: any"):
        assert many[name] <= 1.5 * few[name] + FEW_INSTRUCTIONS, name
