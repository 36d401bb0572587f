"""Faults from inside of members, on small programs in the place of members."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.inside.insides import Insides, LibraryMissing, built_library
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member, OrderFailed
from jepsen_like.chaos.nemeses.catalogue import CLOCK_STEP_MS, NEMESES
from jepsen_like.chaos.nemeses.executor import Skipped, executor_of
from jepsen_like.chaos.nemeses.inside_faults import InsideFaults, step_of

PATIENCE_S = 30.0
# Carries out orders: syncs a file, and ends if that fails, or goes on all the same; tells how
# far its wall clock is ahead of the monotonic one, in milliseconds.
PROGRAM = """
import json, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print(json.dumps({"status": {"ready": True, "term": 1}}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    said = {"id": order["id"], "value": (time.time_ns() - time.monotonic_ns()) / 1e6}
    if order["do"] == "sync":
        try:
            os.fdatasync(file)
        except OSError as error:
            if sys.argv[2] == "ends":
                sys.exit(1)
            said = {"id": order["id"], "error": error.strerror}
    print(json.dumps(said), flush=True)
"""


class Steered:
    """A group of one program whose calls are steered."""

    def __init__(self, folder: Path, insides: Insides, then: str) -> None:
        command = [sys.executable, "-c", PROGRAM, str(folder / "file"), then]
        self.member = Member("n0", insides.command("n0", command), folder / "n0.log", folder)
        self.steering = insides.steerings["n0"]
        self.group = Group(lambda member: None)
        self.group.start(self.member)
        self.findings: list[str] = []
        self.faults = InsideFaults(insides.steerings, self.findings.append)


@asynccontextmanager
async def steered(folder: Path, then: str = "ends") -> AsyncIterator[Steered]:
    try:
        insides = Insides(folder / "inside")
    except LibraryMissing as missing:
        pytest.skip(str(missing))
    with closing(insides):
        one = Steered(folder, insides, then)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.member.run_once)
            with trio.fail_after(PATIENCE_S):
                while not one.member.status:  # noqa: ASYNC110 - told by another process
                    await trio.sleep(0.01)
            yield one
            nursery.cancel_scope.cancel()


async def test_a_member_that_ends_when_a_sync_fails_is_no_finding(tmp_path: Path) -> None:
    async with steered(tmp_path) as one:
        faults = one.faults.failed_syncs(one.group, Chance(1, "fault 0"), "fsync-fails-leader")
        with trio.fail_after(PATIENCE_S):
            async with faults as done:
                assert done.targets == ("n0",)
                await one.member.order("time")
                process = one.member.process
                assert process is not None
                assert process.stdin is not None
                await process.stdin.send_all(b'{"id": 0, "do": "sync"}\n')
                await one.member.ended()
        assert done.effect() == {"failed": 1}
        assert one.findings == []


@pytest.mark.parametrize("is_of_the_log", [True, False])
async def test_a_member_that_goes_on_is_a_finding_if_the_sync_of_its_log_failed(
    is_of_the_log: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jepsen_like.chaos.nemeses.inside_faults.ENDS_WITHIN_S", 0.05)
    async with steered(tmp_path, "goes on") as one:
        if not is_of_the_log:
            one.member.folder.mkdir()  # then the file lies beside the log
        chance = Chance(1, "fault 0")
        async with one.faults.failed_syncs(one.group, chance, "fsync-fails-random"):
            with pytest.raises(OrderFailed, match="Input/output error"):
                await one.member.order("sync", PATIENCE_S)
        told = ["n0 went on for 0.05 s after a sync of file failed"]
        assert one.findings == (told if is_of_the_log else [])
        await one.member.order("sync", PATIENCE_S)


async def test_a_member_whose_syncs_did_not_fail_may_go_on(tmp_path: Path) -> None:
    async with steered(tmp_path) as one:
        chance = Chance(1, "fault 0")
        async with one.faults.failed_syncs(one.group, chance, "fsync-fails-all") as done:
            pass
        await one.member.order("sync", PATIENCE_S)
        assert one.findings == []
        assert done.effect() == {"failed": 0}


async def test_a_stalled_disk_is_back_when_the_fault_ends(tmp_path: Path) -> None:
    async with steered(tmp_path) as one:
        chance, answered = Chance(1, "fault 0"), trio.Event()

        async def sync() -> None:
            await one.member.order("sync", PATIENCE_S)
            answered.set()

        async with trio.open_nursery() as nursery:
            stalled = one.faults.slow_syncs(one.group, chance, "fsync-stall-leader")
            async with stalled as done:
                nursery.start_soon(sync)
                with trio.fail_after(PATIENCE_S):
                    while not one.steering.syncs_delayed:  # noqa: ASYNC110
                        await trio.sleep(0.01)
                assert not answered.is_set()
        assert done.effect() == {"delayed": 1}


async def test_a_stepped_clock_is_right_again_when_the_fault_ends(tmp_path: Path) -> None:
    async with steered(tmp_path) as one:
        right_ms = await one.member.order("time", PATIENCE_S)
        chance = Chance(1, "fault 0")
        async with one.faults.stepped_clocks(one.group, chance, "clock-all") as done:
            stepped_ms = await one.member.order("time", PATIENCE_S)
            assert stepped_ms - right_ms == pytest.approx(done.details["steps_ms"]["n0"], abs=20)
        read = done.effect()["stepped"]
        assert read > 0
        healed_ms = await one.member.order("time", PATIENCE_S)
        assert healed_ms == pytest.approx(right_ms, abs=20)
        assert done.effect() == {"stepped": read}


async def test_a_strobed_clock_goes_to_and_fro(tmp_path: Path) -> None:
    async with steered(tmp_path) as one:
        right_ms = await one.member.order("time", PATIENCE_S)
        chance = Chance(1, "fault 0")
        strobed = one.faults.strobed_clock(one.group, chance, "clock-strobe-leader")
        async with strobed as done:
            for expected_ms in (done.details["step_ms"], 0, done.details["step_ms"]):
                ahead_ms = right_ms + expected_ms
                with trio.fail_after(PATIENCE_S):
                    while abs(await one.member.order("time", PATIENCE_S) - ahead_ms) > 20:
                        pass


async def test_a_member_without_the_library_is_left_alone(tmp_path: Path) -> None:
    async with steered(tmp_path) as one:
        faults = InsideFaults({}, one.findings.append)
        with pytest.raises(Skipped, match="n0: the process does not load libraries"):
            async with faults.slow_syncs(one.group, Chance(1, "fault 0"), "fsync-slow-all"):
                pass


def test_each_kind_of_fault_from_inside_can_be_carried_out() -> None:
    executors = InsideFaults({}, lambda finding: None).executors
    nemeses = {name: one for name, one in NEMESES.items() if one.from_inside}
    kinds = {kind.name for one in nemeses.values() for kind in one.kinds}
    assert executors.keys() <= nemeses.keys() | kinds
    for name, one in nemeses.items():
        for kind in one.kinds:
            assert executor_of(executors, name, kind.name) is not None


def test_clocks_are_stepped_forward_and_back_by_little_and_by_much() -> None:
    steps_ms = [step_of(Chance(seed, "fault 0")) for seed in range(200)]
    assert all(CLOCK_STEP_MS[0] <= abs(step_ms) <= CLOCK_STEP_MS[1] for step_ms in steps_ms)
    assert min(steps_ms) < -10_000
    assert max(steps_ms) > 10_000
    assert min(abs(step_ms) for step_ms in steps_ms) < 200


def test_a_machine_without_a_compiler_has_no_library_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryMissing, match="there is no C compiler"):
        built_library(tmp_path)


def test_a_compiler_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho calls.c: no header >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryMissing, match=r"cannot build calls\.c: calls\.c: no header"):
        built_library(tmp_path)


def test_a_folder_whose_name_ends_a_list_of_libraries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LibraryMissing, match="takes no path with a space or a colon"):
        built_library(tmp_path / "my run")


def test_libraries_that_are_preloaded_anyway_stay_so(tmp_path: Path) -> None:
    try:
        insides = Insides(tmp_path, "/lib/other.so")
    except LibraryMissing as missing:
        pytest.skip(str(missing))
    with closing(insides):
        command = insides.command("n0", ["true"])
        assert f"LD_PRELOAD={tmp_path / 'calls.so'}:/lib/other.so" in command
