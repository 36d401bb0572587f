"""Runs of another system, and the command that makes a run again."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.verdict import again
from jepsen_like.run_command import run
from tests.jepsen_like.chaos.run_process import run_in

PROJECT = Path(__file__).parents[3]
MEMBER = "bench.pysyncobj_chaos_member"


def run_pysyncobj(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ("--workload", "append", "--system", MEMBER)
    return run_in(folder, *command, *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workload", "set", "--system", "nowhere"), "there is no module nowhere"),
        (("--workload", "set", "--system", "nowhere.at_all"), "there is no module nowhere.at_all"),
        *(
            (("--workload", "set", "--system", name), f"there is no module {name}")
            for name in ("a:b", "a/b", "..", "json.none", "")
        ),
        (("--workload", "pop", "--system", MEMBER), "--system goes with a workload of the library"),
        (
            ("--workload", "register", "--system", MEMBER, "--dirty", "stale-read"),
            "and without --dirty",
        ),
    ],
)
def test_a_system_that_cannot_be_run_is_refused_in_a_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(main, ["run", *words])
    assert ended.exit_code == 2
    assert said in ended.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "plan",
    [
        RunPlan("register", ("kill", "freeze"), nodes=5, time_s=30.5, seed=9, lease=True),
        RunPlan("set", (), seed=9, network="none", calls_a_second=2.5),
        RunPlan("register", ("kill",), seeded_bug="stale-read"),
        RunPlan("append", ("kill",), system=MEMBER),
        RunPlan("messages", ("kill",), client="cpp"),
    ],
)
def test_the_command_of_a_run_makes_the_same_plan(plan: RunPlan) -> None:
    words = shlex.split(again(plan, "--workload"))
    assert words[:2] == ["jepsen-like", "run"]
    told = run.make_context("run", words[2:]).params
    assert plan == RunPlan(
        told["workload"],
        told["nemeses"],
        told["nodes"],
        told["time_s"],
        told["seed"],
        told["lease"],
        told["rate"],
        told["network"],
        told["dirty"],
        told["system"],
        told["client"],
    )


@pytest.mark.long
def test_a_group_of_pysyncobj_is_right_while_nothing_breaks(tmp_path: Path) -> None:
    ended = run_pysyncobj(tmp_path, "--nemesis", "none", "--time", "8", "--network", "none")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "valid (list-append)" in ended.stdout


# In each of some tries the entries of two or more of the kills were lost.
@pytest.mark.long
def test_entries_that_pysyncobj_loses_are_found(tmp_path: Path) -> None:
    nemesis = "bench.snapshot_nemesis:KillAtSnapshot"
    words = ("--nemesis", nemesis, "--time", "60", "--rate", "30", "--network", "none")
    ended = run_pysyncobj(tmp_path, *words)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "incompatible order" in ended.stdout
