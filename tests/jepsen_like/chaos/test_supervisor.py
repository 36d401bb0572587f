"""The supervisor of a run, over small programs in the place of members."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from jepsen_like.chaos.fault_log import FaultLog
from jepsen_like.chaos.members.member import Member, OrderFailed
from jepsen_like.chaos.members.supervisor import Supervisor

# Programs start and end in a fraction of it.
PATIENCE_S = 30.0

# Ends with words while a path is there; then tells a status, and answers orders until it is left.
PROGRAM = """
import json, pathlib, sys
if pathlib.Path(sys.argv[1]).exists():
    sys.exit(sys.argv[2])
print(json.dumps({"status": {"role": "leader"}}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "fail":
        print(json.dumps({"id": order["id"], "error": "NotLeader: ask another"}), flush=True)
    elif order["do"] != "wait":
        print(json.dumps({"id": order["id"], "value": order["do"]}), flush=True)
"""


class OneMember:
    """A member under a supervisor, and what both leave."""

    def __init__(self, folder: Path, words: str, *, broken: bool) -> None:
        self.data = folder / "data"
        name = "n0"
        path = self.data / f"dledger-{name}"
        path.mkdir(parents=True)
        if not broken:
            path.rmdir()
        command = [sys.executable, "-c", PROGRAM, str(path), words]
        self.member = Member(name, command, folder / "n0.log", self.data)
        self.findings: list[str] = []
        clock = itertools.count()
        self.faults = FaultLog(folder / "faults.jsonl", lambda: next(clock), lambda: "now")
        self.freed: list[str] = []
        self.supervisor = Supervisor(
            {name: self.member},
            self.faults,
            self.findings.append,
            lambda member: self.freed.append(member.name),
        )

    async def until_it_serves(self, incarnation: int) -> None:
        with trio.fail_after(PATIENCE_S):
            while (  # noqa: ASYNC110 - told by another process
                self.member.incarnations < incarnation or not self.member.status
            ):
                await trio.sleep(0.01)

    def events(self) -> list[str]:
        return [str(event["event"]) for event in self.faults.events]


Make = Callable[[str], OneMember]


@pytest.fixture
def member_that_says(tmp_path: Path) -> Iterator[Make]:
    """Makes the one member of a test; without words it is whole."""
    with ExitStack() as stack:

        def make(words: str) -> OneMember:
            one = OneMember(tmp_path, words, broken=bool(words))
            stack.callback(one.faults.close)
            return one

        yield make


async def test_a_member_is_started_again_as_its_last_words_advise(member_that_says: Make) -> None:
    words = "stopped: X: have the member begin anew in an empty folder"
    one = member_that_says(words)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.supervisor.watch, one.member)
        await one.until_it_serves(2)
        nursery.cancel_scope.cancel()
    assert one.findings == []
    assert one.events() == ["start", "down", "start"]
    assert one.faults.events[1]["done"] == "start it on an empty folder"
    assert not one.member.folder.exists()
    assert not one.member.runs


async def test_a_member_whose_advice_does_not_help_is_a_finding(member_that_says: Make) -> None:
    one = member_that_says("stopped: X: free or replace the disk")
    with trio.fail_after(PATIENCE_S):
        await one.supervisor.watch(one.member)
    assert one.freed == ["n0"]
    assert one.events() == ["start", "down", "start", "down"]
    (finding,) = one.findings
    assert "no advice that helps (tried: free the disk, then start it again)" in finding


async def test_words_without_advice_and_errors_that_must_not_be_are_findings(
    member_that_says: Make,
) -> None:
    one = member_that_says("stopped: InvariantBroken: two leaders")
    with trio.fail_after(PATIENCE_S):
        await one.supervisor.watch(one.member)
    assert len(one.findings) == 2
    assert "ended by an error that must never be: InvariantBroken: two leaders" in one.findings[0]


async def test_a_member_that_was_killed_stays_down_as_long_as_it_is_held(
    member_that_says: Make,
) -> None:
    one = member_that_says("")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.supervisor.watch, one.member)
        await one.until_it_serves(1)
        with one.member.held_down():
            one.member.kill()
            await one.member.ended()
            await trio.sleep(0.5)
            assert one.member.incarnations == 1
        await one.until_it_serves(2)
        one.member.retired = True
        one.member.stop()
    assert one.findings == []
    assert one.events() == ["start", "down", "start", "down"]
    assert [event["expected"] for event in one.faults.events if event["event"] == "down"] == [
        True,
        True,
    ]


async def test_a_member_that_is_killed_while_it_is_being_started_ends_as_well(
    member_that_says: Make,
) -> None:
    one = member_that_says("")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.supervisor.watch, one.member)
        while not one.member.is_starting:
            await trio.lowlevel.checkpoint()
        with one.member.held_down(), trio.fail_after(PATIENCE_S):
            one.member.kill()
            assert one.member.process is None
            await one.member.ended()
            assert one.member.process is not None
            assert not one.member.runs
        await one.until_it_serves(2)
        nursery.cancel_scope.cancel()
    assert one.findings == []


async def test_orders_are_answered_refused_or_given_up(member_that_says: Make) -> None:
    one = member_that_says("")
    problems = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.supervisor.watch, one.member)
        await one.until_it_serves(1)
        assert await one.member.order("look") == "look"
        for do in ("fail", "wait"):
            try:
                await one.member.order(do, 0.1 if do == "wait" else PATIENCE_S)
            except OrderFailed as error:
                problems.append(str(error))
        one.member.freeze()
        one.member.resume()
        assert await one.member.order("look") == "look"
        nursery.cancel_scope.cancel()
    assert problems == ["n0: NotLeader: ask another", "n0 did not wait within 0.1 s"]
    with pytest.raises(OrderFailed, match="n0 does not run"):
        await one.member.order("look")


async def test_what_helped_before_is_tried_again_after_a_new_fault(member_that_says: Make) -> None:
    one = member_that_says("stopped: X: free or replace the disk")

    def free_disk(member: Member) -> None:
        one.freed.append(member.name)
        if len(one.freed) == 2:
            one.member.folder.rmdir()  # which is what it complains of
        member.broken_anew = True

    one.supervisor = Supervisor({"n0": one.member}, one.faults, one.findings.append, free_disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.supervisor.watch, one.member)
        await one.until_it_serves(3)
        nursery.cancel_scope.cancel()
    assert one.freed == ["n0", "n0"]
    assert one.findings == []
