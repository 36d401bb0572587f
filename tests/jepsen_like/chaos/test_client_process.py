"""The process of the clients, over a small program in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jepsen_like.chaos.client_process import client_process
from jepsen_like.chaos.harness_failed import HarnessFailed

PROJECT = Path(__file__).parents[3]
PATIENCE_S = 30.0
# Counts when it is told to, and answers the orders of runs.
PROGRAM = """
import json, sys
def say(**fields):
    print(json.dumps(fields), flush=True)
if sys.argv[1] == "counts":
    say(counts={"ok": 3})
if sys.argv[1] == "prints":
    print("hello", flush=True)
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


async def test_output_that_is_no_answer_is_a_failure_of_the_harness(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with client_process(command("prints"), tmp_path / "clients.log") as clients:
            await clients.wait_started(PATIENCE_S)
    (error,) = raised.value.exceptions
    assert isinstance(error, HarnessFailed)
    assert "the process of the clients wrote 'hello' to standard output" in str(error)


def test_what_users_code_prints_is_no_answer() -> None:
    program = "from jepsen_like.chaos.orders import say, take_output\n"
    program += "take_output()\nprint('hello', flush=True)\nsay(ended=True)\n"
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, cwd=PROJECT)
    assert (ended.stdout, ended.stderr) == ('{"ended": true}\n', "hello\n")
