"""What many pops that wait cost when something comes for them: steps, however many they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from bench.costs.asker import Asker
from bench.costs.loop_holds import Instructions, watched
from broker.server import Broker
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.one_broker import Client, running_broker, send_fields

FEW, MANY = 50, 200

# What may grow: a list of what waits, and what it is looked up in.
FEW_INSTRUCTIONS = 2_000


def pop_of(queue_id: int) -> Command:
    fields = {
        **{"consumerGroup": "g", "topic": "T", "queueId": queue_id, "maxMsgNums": 1},
        **{"invisibleTime": 60_000, "pollTime": 15_000, "bornTime": 1, "initMode": 0},
    }
    return Command(RequestCode.POP_MESSAGE, {name: str(value) for name, value in fields.items()})


async def longest_step(broker: Broker, command: Command) -> int:
    """The instructions of the longest step that is taken for a request, or after it."""
    counter = Instructions()
    asker = Asker()
    await trio.testing.wait_all_tasks_blocked(0.02)
    with watched(lambda: counter.count) as holds, counter.counting():
        broker.requests.on_commands(asker, [command])  # type: ignore[arg-type]
        await asker.until(1)
        await trio.testing.wait_all_tasks_blocked(0.02)
    return int(holds.longest)


async def costs_with(folder: Path, count: int) -> dict[str, int]:
    async with running_broker(folder) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        config: dict[str, Any] = {
            **{"topic": "T", "readQueueNums": count, "writeQueueNums": count, "perm": 6},
            **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
        }
        made = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **config)
        assert made.code == 0
        waiting = Asker()
        for queue_id in range(1, count):
            broker.requests.on_commands(waiting, [pop_of(queue_id)])  # type: ignore[arg-type]
        await trio.testing.wait_all_tasks_blocked(0.05)
        send = {name: str(value) for name, value in send_fields("T", 0).items()}
        costs = {
            "a message": await longest_step(
                broker, Command(RequestCode.SEND_MESSAGE_V2, send, b"x")
            ),
            "a deletion": await longest_step(
                broker, Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            ),
        }
        with trio.fail_after(10):
            await waiting.until(count - 1)
        return costs


@pytest.mark.slow
async def test_what_many_pops_wait_for_is_handled_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each step of work that is done in steps is seen by itself.
    monkeypatch.setattr("remoting.net.client_work.SLICE_S", 1e-9)
    monkeypatch.setattr("remoting.net.client_work.TURN_S", 0)
    few = await costs_with(tmp_path / "few", FEW)
    many = await costs_with(tmp_path / "many", MANY)
    grown = {
        what: (cost, many[what])
        for what, cost in few.items()
        if many[what] > 1.5 * cost + FEW_INSTRUCTIONS
    }
    print(few, many)
    assert grown == {}
