"""Packets between real namespaces, and what a run leaves behind that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import astuple
from operator import sub
from pathlib import Path

import pytest
import trio

from jepsen_like.chaos.links.condition import CUT, LinkCondition
from jepsen_like.chaos.links.counts import Counts, LinkCounts
from jepsen_like.chaos.links.namespaces import FOLDER, prefix_of, why_not
from jepsen_like.chaos.links.switched_network import SwitchedNetwork, switched_network

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")

PROJECT = Path(__file__).parents[4]
VANISH_S_MAX = 5.0
PACKETS = 200

# Answers each datagram with itself.
ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
    echo.bind((sys.argv[1], 9))
    sys.stdout.write("listens")
    sys.stdout.flush()
    while True:
        echo.sendto(*echo.recvfrom(100))
"""
# For each line of input, sends so many datagrams, and says how many answers came until none does
# for so long, and how late the first was.
SENDER = """
import json, socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.connect((sys.argv[1], 9))
    for line in sys.stdin:
        number, patience_s = json.loads(line)
        sender.settimeout(patience_s)
        begin, first_s, answers = time.monotonic(), None, 0
        for _ in range(number):
            sender.send(b"x")
        try:
            while True:
                sender.recv(100)
                answers += 1
                first_s = first_s or time.monotonic() - begin
        except TimeoutError:
            sys.stdout.write(json.dumps([answers, first_s]) + "\\n")
            sys.stdout.flush()
"""
# A run with a process in a namespace, which says so and never ends.
RUN = """
import subprocess, sys, trio
from jepsen_like.chaos.links.switched_network import switched_network
async def main():
    async with switched_network(["a", "b"], 1) as network:
        member = network.wiring.command("a", [sys.executable, "-c", "import sys; sys.stdin.read()"])
        await trio.lowlevel.open_process(member, stdin=subprocess.PIPE)
        print(network._process.pid, flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


class Pair:
    """A sender on host `a` and an echo on host `b`."""

    def __init__(self, network: SwitchedNetwork, sender: trio.Process) -> None:
        self.network = network
        self._sender = sender
        self._before: Counts = {}

    async def answers(self, number: int, patience_s: float = 0.2) -> tuple[int, float | None]:
        assert self._sender.stdin is not None
        assert self._sender.stdout is not None
        await self._sender.stdin.send_all(json.dumps([number, patience_s]).encode() + b"\n")
        said = b""
        while not said.endswith(b"\n"):
            piece = await self._sender.stdout.receive_some(100)
            assert piece, "the sender has ended"
            said += piece
        answers, first_s = json.loads(said)
        return answers, first_s

    async def counts(self) -> tuple[LinkCounts, LinkCounts]:
        """There, and back, since the last call."""
        before, self._before = self._before, await self.network.counts()
        there, back = (_since(before, self._before, link) for link in (("a", "b"), ("b", "a")))
        return there, back


def _since(before: Counts, counts: Counts, link: tuple[str, str]) -> LinkCounts:
    pair = (astuple(one.get(link, LinkCounts())) for one in (counts, before))
    return LinkCounts(*map(sub, *pair))


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    async with switched_network(["a", "b"], 1) as network:
        address = network.wiring.addresses["b"].peer.partition(":")[0]
        command = [sys.executable, "-c"]
        echo = await trio.lowlevel.open_process(
            network.wiring.command("b", [*command, ECHO, address]), stdout=subprocess.PIPE
        )
        sender = await trio.lowlevel.open_process(
            network.wiring.command("a", [*command, SENDER, address]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert echo.stdout is not None
            assert await echo.stdout.receive_some(100) == b"listens"
            yield Pair(network, sender)
        finally:
            for process in (echo, sender):
                process.kill()
                await process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        await pipe.aclose()


async def test_packets_between_namespaces_fare_as_the_link_says() -> None:
    async with pair() as two:
        assert (await two.answers(1, 0.5))[0] == 1
        await two.counts()

        await two.network.set_links({("b", "a"): CUT})
        assert await two.answers(10) == (0, None)
        assert await two.counts() == (LinkCounts(passed=10), LinkCounts(lost=10))

        await two.network.set_links({("a", "b"): LinkCondition(delay_s=0.1)})
        number, first_s = await two.answers(1, 0.4)
        assert number == 1
        assert first_s is not None
        assert first_s >= 0.1
        assert (await two.counts())[0] == LinkCounts(passed=1, held=1)

        await two.network.set_links({("a", "b"): LinkCondition(duplicate=1.0)})
        assert (await two.answers(5))[0] == 10
        assert (await two.counts())[0] == LinkCounts(passed=10, held=5, copied=5)

        await two.network.set_links({("a", "b"): LinkCondition(loss=0.3)})
        number, _ = await two.answers(PACKETS)
        there, back = await two.counts()
        assert 0.15 * PACKETS < there.lost < 0.45 * PACKETS
        assert number == back.passed == there.passed == PACKETS - there.lost

        await two.network.heal()
        assert (await two.answers(5))[0] == 5


@contextmanager
def run_of_its_own() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A run in another process, and the process of its switch."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    ) as run:
        try:
            assert run.stdout is not None
            yield run, int(run.stdout.readline())
        finally:
            run.kill()


def namespaces_of(pid: int) -> list[str]:
    return sorted(path.name for path in FOLDER.glob(f"{prefix_of(pid)}-*"))


def is_running(pid: int) -> bool:
    """Whether a process runs. An orphan that has ended waits for the first process to notice."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(") ")[2][0] != "Z"


def wait_until_none_is_left(run: int, switch: int) -> None:
    end = time.monotonic() + VANISH_S_MAX
    while (namespaces_of(run) or is_running(switch)) and time.monotonic() < end:
        time.sleep(0.02)
    assert namespaces_of(run) == []
    assert not is_running(switch)


def test_namespaces_and_the_switch_vanish_with_a_run_that_is_killed() -> None:
    with run_of_its_own() as (run, switch):
        assert len(namespaces_of(run.pid)) == 2
        run.kill()
        run.wait()
        wait_until_none_is_left(run.pid, switch)


def test_a_switch_that_is_told_to_end_removes_the_namespaces() -> None:
    with run_of_its_own() as (run, switch):
        assert len(namespaces_of(run.pid)) == 2
        os.kill(switch, signal.SIGTERM)
        wait_until_none_is_left(run.pid, switch)
