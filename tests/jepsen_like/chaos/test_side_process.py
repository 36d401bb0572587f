"""Processes beside the members of a run, which a nemesis kills and freezes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.catalogue import NEMESES
from jepsen_like.chaos.nemeses.executor import Skipped, executor_of
from jepsen_like.chaos.nemeses.process_faults import CLIENTS, side_faults
from jepsen_like.chaos.side_process import SideProcess, last_words

PATIENCE_S = 30.0
# Says its number, then repeats what it is told.
PROGRAM = """
import os, sys
print(os.getpid(), flush=True)
for line in sys.stdin:
    if line == "end\\n":
        sys.exit("it has had enough")
    print(line.strip(), flush=True)
"""


class Echo:
    """Such a program, and what it has said."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", PROGRAM]
        self.process = SideProcess("echo", command, folder / "echo.log", self._hear)
        self.faults = side_faults({CLIENTS: self.process})
        self.said: list[str] = []
        self._heard = trio.Event()

    def _hear(self, line: str) -> None:
        self.said.append(line)
        self._heard.set()

    async def until_said(self, count: int) -> None:
        with trio.fail_after(PATIENCE_S):
            while len(self.said) < count:
                self._heard = trio.Event()
                await self._heard.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.process.run)
            await self.until_said(1)
            yield
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def broken(self, nemesis: str, kind: str) -> AsyncIterator[tuple[str, ...]]:
        assert kind in {one.name for one in NEMESES[nemesis].kinds}
        executor = executor_of(self.faults, nemesis, kind)
        async with executor(Group(lambda member: None), Chance(1, "any"), kind) as done:
            yield done.targets


@pytest.fixture
def echo(tmp_path: Path) -> Echo:
    return Echo(tmp_path)


async def test_a_killed_process_is_started_again_when_the_fault_is_over(echo: Echo) -> None:
    async with echo.running():
        async with echo.broken("clients", "kill-clients") as targets:
            assert targets == ("echo",)
            assert len(echo.said) == 1
        await echo.process.say("hello")  # to the one that comes
        await echo.until_said(3)
        first, second, told = echo.said
        assert first != second
        assert told == "hello"


async def test_a_frozen_process_says_nothing_until_the_fault_is_over(echo: Echo) -> None:
    async with echo.running():
        async with echo.broken("clients", "freeze-clients"):
            await echo.process.say("hello")
            with trio.move_on_after(0.05):
                await echo.until_said(2)
            assert len(echo.said) == 1
        await echo.until_said(2)
        assert echo.said[1] == "hello"


async def test_a_process_that_ends_by_itself_is_a_failure_of_the_harness(echo: Echo) -> None:
    async def end_it() -> None:
        async with echo.running():
            await echo.process.say("end")
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as failed:
        await end_it()
    (error,) = failed.value.exceptions
    assert isinstance(error, HarnessFailed)
    assert str(error) == "the echo ended: it has had enough"


async def test_what_a_workload_does_not_have_is_left_out(echo: Echo) -> None:
    with pytest.raises(Skipped, match="has no name server"):
        async with echo.broken("name-server", "kill-name-server"):
            raise AssertionError("there is nothing to kill")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("one\nstopped: no disk\n", "stopped: no disk"),
        (
            "  +-+---- 1 ----\n    | trio.BusyError: two tasks\n    +------------\n",
            "trio.BusyError: two tasks",
        ),
        ("\n", "it said nothing"),
    ],
)
def test_the_last_words_of_a_process_are_a_line_with_a_word(log: str, said: str) -> None:
    assert last_words(log) == said
