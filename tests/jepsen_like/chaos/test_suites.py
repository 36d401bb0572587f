"""Suites: what they plan, what they take as finished, and what they say of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jepsen_like.__main__ import main
from jepsen_like.chaos.nemeses.catalogue import NEMESES
from jepsen_like.chaos.plan import RunPlan, typed
from jepsen_like.chaos.stages.brokers import EXPLANATIONS
from jepsen_like.chaos.suites.catalogue import SUITES, Planned, Row, planned
from jepsen_like.chaos.suites.made_run import finished_run, worst_gap
from jepsen_like.chaos.suites.suite_folder import SuiteFolder
from jepsen_like.chaos.verdict import again
from jepsen_like.chaos.workloads.catalogue import WORKLOADS
from jepsen_like.report.told_run import RunExit

PROJECT = Path(__file__).parents[3]
SEED, TIME_S = 40, 45.0
MEMBERSHIP = SUITES["membership"].rows


def write_run(folder: Path, one: Planned, **changed: object) -> None:
    """What `jepsen-like run` leaves in the folder of a run, as far as suites read it."""
    row = one.row
    told = {
        "plan": {
            "service": row.workload,
            "nemeses": row.nemeses.split(","),
            "nodes": row.nodes,
            "time_s": TIME_S,
            "seed": one.seed,
            "lease": row.lease,
            "client": row.client,
        },
        "again": f"jepsen-like run --seed {one.seed}",
        "interrupted": False,
        "verdict": "nothing found",
        "exit_code": 0,
        "reason": "all is well",
        "checked": {"operations": 700},
        "gaps": [gap("kill-leader", "writes", 1.25), gap("freeze-leader", "reads of others", 9.0)],
        **changed,
    }
    (folder / one.name).mkdir(parents=True)
    (folder / one.name / "run.json").write_text(json.dumps(told))


def gap(kind: str, who: str, max_s: float) -> dict[str, object]:
    return {"kind": kind, "who": who, "median_s": 0.5, "p95_s": 0.75, "max_s": max_s}


def begun_suite(folder: Path, finished: int, **changed_of_last: object) -> None:
    """A folder in which the first runs of the suite of memberships are finished."""
    folder.mkdir()
    plan = {"suites": ["membership"], "seed": SEED, "time_s": TIME_S, "network": "auto"}
    (folder / "suite.json").write_text(json.dumps({"suite_format": 1, "plan": plan, "runs": []}))
    for place, one in enumerate(islice(planned(["membership"], SEED, 1), finished)):
        write_run(folder, one, **(changed_of_last if place == finished - 1 else {}))


def suite(*words: str) -> Result:
    """Call the command so that no run begins: it tells what is there."""
    return CliRunner().invoke(main, ["suite", *words, "--hours", "0"])


@pytest.mark.parametrize("name", list(SUITES))
def test_suites_name_workloads_and_nemeses_that_there_are(name: str) -> None:
    for row in SUITES[name].rows:
        assert row.workload in {*WORKLOADS, *EXPLANATIONS}
        nemeses = row.nemeses.split(",")
        assert set(nemeses) <= set(NEMESES)
        # Of the library there is no name server, and its clients do not come back.
        assert row.workload in EXPLANATIONS or not {"name-server", "clients"} & set(nemeses)
        assert not row.lease or row.workload not in EXPLANATIONS


def test_every_workload_and_nemesis_is_in_the_suite_of_chaos() -> None:
    rows = SUITES["chaos"].rows
    assert {row.workload for row in rows} == {*WORKLOADS, *EXPLANATIONS}
    assert {name for row in rows for name in row.nemeses.split(",")} == set(NEMESES)


def test_every_run_of_every_round_has_a_seed_and_a_folder_of_its_own() -> None:
    runs = list(planned(["disk", "broker"], SEED, 3))
    assert len(runs) == 3 * (len(SUITES["disk"].rows) + len(SUITES["broker"].rows))
    assert len({run.seed for run in runs}) == len({run.name for run in runs}) == len(runs)
    assert list(islice(planned(["disk", "broker"], SEED, None), len(runs))) == runs


@pytest.mark.parametrize(
    "changed",
    [
        {"interrupted": True},
        {"exit_code": None, "verdict": None},
        {
            "plan": {
                "service": "bank",
                "nemeses": [],
                "nodes": 3,
                "time_s": 1,
                "seed": 1,
                "lease": 0,
            }
        },
    ],
)
def test_a_run_that_was_stopped_or_failed_or_was_planned_otherwise_is_not_finished(
    changed: dict[str, object], tmp_path: Path
) -> None:
    one = Planned(0, Row("set", "kill"), SEED)
    assert finished_run(tmp_path / one.name, one, TIME_S) is None
    write_run(tmp_path / "right", one)
    write_run(tmp_path / "wrong", one, **changed)
    assert finished_run(tmp_path / "right" / one.name, one, TIME_S) is not None
    assert finished_run(tmp_path / "wrong" / one.name, one, TIME_S) is None


def test_the_worst_gap_is_the_longest_one_of_writers() -> None:
    rows = [gap("kill-leader", "writes", 1.0), gap("halves", "writes", 3.0)]
    worst = worst_gap([*rows, gap("freeze-random", "reads of the hit", 7.0)])
    assert worst is not None
    assert (worst.kind, worst.median_s, worst.p95_s, worst.max_s) == ("halves", 0.5, 0.75, 3.0)
    assert worst_gap([gap("freeze-random", "reads of others", 7.0)]) is None


def test_a_suite_tells_of_runs_that_are_finished_and_makes_none_of_them_again(
    tmp_path: Path,
) -> None:
    begun_suite(tmp_path / "out", 3)
    ended = suite("membership", "--out", str(tmp_path / "out"))
    assert ended.exit_code == 0, ended.output
    rows = [line for line in ended.stdout.splitlines() if "\t" in line]
    assert rows[0].startswith("run\tworkload\tnemeses")
    assert len(rows) == 4
    first = MEMBERSHIP[0]
    told = f"0000-{first.workload}\t{first.workload}\t{first.nemeses}\t3\t700\tnothing found"
    assert rows[1] == f"{told}\tkill-leader\t0.50\t0.75\t1.25"
    page = (tmp_path / "out" / "index.html").read_text()
    assert "3 runs, 2,100 operations" in page
    told_runs = json.loads((tmp_path / "out" / "suite.json").read_text())["runs"]
    assert [run["verdict"] for run in told_runs] == ["nothing found"] * 3


def test_an_index_links_the_report_of_each_run_or_else_its_output(tmp_path: Path) -> None:
    begun_suite(tmp_path / "out", 2)
    report = tmp_path / "out" / f"0000-{MEMBERSHIP[0].workload}" / "report.html"
    report.touch()
    suite("membership", "--out", str(tmp_path / "out"))
    page = (tmp_path / "out" / "index.html").read_text()
    assert f'href="0000-{MEMBERSHIP[0].workload}/report.html"' in page
    assert f'href="0001-{MEMBERSHIP[1].workload}.txt"' in page


def test_a_suite_ends_as_its_worst_run(tmp_path: Path) -> None:
    begun_suite(tmp_path / "a", 3, verdict="violation", exit_code=1, reason="two leaders")
    ended = suite("membership", "--out", str(tmp_path / "a"))
    assert ended.exit_code == 1
    assert f"0002-{MEMBERSHIP[2].workload}: violation: two leaders" in ended.output
    assert f"again: jepsen-like run --seed {SEED + 2}" in ended.output
    begun_suite(tmp_path / "b", 3, verdict="undecided", exit_code=2)
    assert suite("membership", "--out", str(tmp_path / "b")).exit_code == 2


def test_runs_of_another_plan_are_neither_taken_nor_touched(tmp_path: Path) -> None:
    begun_suite(tmp_path / "out", 1)
    for words in (("disk",), ("membership", "--seed", "41"), ("membership", "--time", "50")):
        ended = suite(*words, "--out", str(tmp_path / "out"))
        assert ended.exit_code == 2
        assert "holds runs of membership with seed 40" in ended.output
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    ended = suite("membership", "--out", str(tmp_path / "other"))
    assert "holds something else than a suite" in ended.output


@pytest.mark.parametrize("told", ["", "[]", "{}", '{"plan": {"suites": 3}}', '{"plan": null}'])
def test_a_file_of_a_suite_that_has_no_plan_is_told_in_a_line(told: str, tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(told)
    for words in (("membership",), ("membership", "--seed", "7")):
        ended = suite(*words, "--out", str(tmp_path))
        assert ended.exit_code == 2
        assert "suite.json has no plan of a suite: name another folder" in ended.output
        assert "Traceback" not in ended.output


@pytest.mark.parametrize("exit_code", list(RunExit))
def test_the_data_of_members_stays_only_where_something_was_found(
    tmp_path: Path, exit_code: RunExit
) -> None:
    one = Planned(0, Row("set", "kill"), SEED)
    write_run(tmp_path, one, exit_code=int(exit_code))
    data = tmp_path / one.name / "data" / "n0"
    data.mkdir(parents=True)
    assert SuiteFolder(tmp_path).ended(one).exit_code == exit_code
    assert data.exists() is (exit_code != RunExit.NOTHING_FOUND)
    assert (tmp_path / one.name / "run.json").exists()


@pytest.mark.parametrize(
    ("number", "words"),
    [(60.0, "60"), (100 / 3, "33.333333333333336"), (1e6, "1000000"), (0.1, "0.1")],
)
def test_a_command_is_told_with_the_very_numbers_of_the_plan(number: float, words: str) -> None:
    assert typed(number) == words
    plan = RunPlan("set", (), time_s=number, calls_a_second=number)
    told = again(plan, "--workload").split()
    assert float(told[told.index("--time") + 1]) == number
    assert float(told[told.index("--rate") + 1]) == number


def test_what_was_begun_is_set_aside_before_a_run_is_made_again(tmp_path: Path) -> None:
    one = Planned(0, Row("set", "kill"), SEED)
    folder = SuiteFolder(tmp_path)
    for number in (1, 2):
        (tmp_path / one.name).mkdir()
        (tmp_path / one.name / f"told-{number}").touch()
        assert not folder.room_for(one).exists()
        assert (tmp_path / f"{one.name}-aside-{number}" / f"told-{number}").exists()


@pytest.mark.long
def test_a_suite_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ["membership", "--time", "4", "--network", "none", "--seed", "5", "--out", "out"]
    command = [sys.executable, "-m", "jepsen_like", "suite", *words]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path, env=environment)
    second = tmp_path / "out" / f"0001-{MEMBERSHIP[1].workload}"
    history = second / "history.jsonl"
    end = time.monotonic() + 120
    while not (history.exists() and history.stat().st_size > 4_000) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 2
    assert json.loads((second / "run.json").read_text())["interrupted"] is True
    assert not (tmp_path / "out" / f"0002-{MEMBERSHIP[2].workload}").exists()
    first = tmp_path / "out" / f"0000-{MEMBERSHIP[0].workload}" / "history.jsonl"
    written_ns = first.stat().st_mtime_ns
    subprocess.run([*command, "--hours", "0.0005"], cwd=tmp_path, env=environment, check=True)
    assert first.stat().st_mtime_ns == written_ns
    assert json.loads((second / "run.json").read_text())["interrupted"] is False
