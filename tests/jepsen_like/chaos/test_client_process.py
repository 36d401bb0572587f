"""The process of the clients, over a small program in its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jepsen_like.chaos.client_process import client_process
from jepsen_like.chaos.harness_failed import HarnessFailed

PATIENCE_S = 30.0
# Counts when it is told to, and answers the orders of runs.
PROGRAM = """
import json, sys
def say(**fields):
    print(json.dumps(fields), flush=True)
if sys.argv[1] == "counts":
    say(counts={"ok": 3})
for line in sys.stdin:
    if line == "end\\n":
        say(ended=True)
    if line == "final\\n":
        say(final=["read c0 at n2"])
"""


def command(does: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, does]


async def test_clients_are_there_once_they_count_and_carry_out_the_orders_of_a_run(
    tmp_path: Path,
) -> None:
    async with client_process(command("counts"), tmp_path / "clients.log") as clients:
        await clients.wait_started(PATIENCE_S)
        assert clients.counts == {"ok": 3}
        await clients.end_calls(PATIENCE_S)
        assert await clients.make_final_calls(PATIENCE_S) == ["read c0 at n2"]


async def test_clients_that_do_not_start_are_a_failure_of_the_harness(tmp_path: Path) -> None:
    said = []
    async with client_process(command("nothing"), tmp_path / "clients.log") as clients:
        with pytest.raises(HarnessFailed, match=r"the clients had not started after 0\.05 s"):
            await clients.wait_started(0.05)
        said.append(clients.counts)
    assert said == [{}]
