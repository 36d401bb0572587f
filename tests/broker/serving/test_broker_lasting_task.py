"""A defect in a task of a feature ends no member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from broker.query.indexing import KeyIndexing
from broker.serving.lasting_task import lasting
from dledger import Fatal
from tests.broker.one_broker import Client, running_broker


async def test_a_task_that_fails_runs_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[float] = []

    async def task() -> None:
        times.append(trio.current_time())
        if len(times) == 1:
            raise RuntimeError("a defect")
        if len(times) == 2:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fails)

    async def fails() -> None:
        raise KeyError("another")

    await lasting(task)
    assert [at - times[0] for at in times] == [0, 1, 2]
    assert "a defect" in caplog.text
    assert "another" in caplog.text


@pytest.mark.parametrize("error", [Fatal("the disk"), OSError("no such port")])
async def test_what_a_member_cannot_serve_without_ends_it(error: Exception) -> None:
    async def task() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)

    async def fails() -> None:
        raise error

    with pytest.raises(ExceptionGroup) as raised:
        await lasting(task)
    assert raised.value.exceptions == (error,)


async def test_a_message_that_the_key_index_fails_at_ends_no_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, failed = KeyIndexing.step, trio.Event()

    def fails_once(indexing: KeyIndexing, units: int) -> bool:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a defect")
        return step(indexing, units)

    monkeypatch.setattr(KeyIndexing, "step", fails_once)
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.send("T", b"x", i="KEYS\x01k\x02")
        await failed.wait()
        fields: dict[str, Any] = {"topic": "T", "key": "k", "maxNum": 1, "beginTimestamp": 0}
        assert (await client.ask(12, **fields, endTimestamp=1 << 62)).code == 0


async def test_tasks_of_features_have_names_of_their_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        root = trio.lowlevel.current_root_task()
        assert root is not None
        tasks, names = [root], set[str]()
        while tasks:
            task = tasks.pop()
            names.add(task.name)
            tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        assert any(name.endswith("IndexTasks.keep") for name in names)
        assert not any(name.endswith("lasting") for name in names)
