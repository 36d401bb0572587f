"""A failing run is made short, and printed as a test that fails until the machine is right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jepsen_like
from jepsen_like import Call, Failure, Schedule, Step
from jepsen_like.simulation.campaign import Plan, run_campaign
from jepsen_like.simulation.service.pasted_test import pasted_test
from jepsen_like.simulation.service.service_campaign import shrunk
from jepsen_like.simulation.service.shrinking import Shrunk
from tests.jepsen_like import services

ROOT = Path(__file__).parents[2]
BEFORE = Schedule(
    seed=1,
    nodes=5,
    length_s=40.0,
    steps=tuple(
        Step(float(at), "kill" if at % 3 == 0 else "append", f"n{at % 5}", 0.5, b"%d" % at)
        for at in range(1, 40)
    ),
)


def search(fails_with: tuple[bytes, ...], runs: int = 10_000) -> Shrunk:
    """Shrink a schedule that fails if these bodies are appended, in this order."""

    def fails(schedule: Schedule) -> Failure | None:
        bodies = [step.body for step in schedule.steps if step.do == "append"]
        there = [body for body in bodies if body in fails_with]
        return Failure(1, 30.0, "promise", "how") if there == list(fails_with) else None

    left = iter(range(runs))
    failure = fails(BEFORE)
    assert failure is not None
    found = Shrunk(
        BEFORE, failure, fails, cuts_bodies=False, is_over=lambda: next(left, None) is None
    )
    found.shrink()
    return found


def test_only_the_steps_that_matter_are_left() -> None:
    found = search((b"5", b"17", b"29"))
    assert [step.body for step in found.schedule.steps] == [b"5", b"17", b"29"]
    assert found.schedule.nodes == 1
    assert found.schedule.length_s < 2.0
    assert not found.gave_up


def test_a_failure_that_needs_no_step_keeps_none() -> None:
    assert search(()).schedule.steps == ()


def test_a_search_ends_when_time_is_over_and_keeps_what_it_has() -> None:
    found = search((b"5", b"17", b"29"), runs=12)
    assert found.gave_up
    assert found.runs <= 12
    assert 3 <= len(found.schedule.steps) < len(BEFORE.steps)


def test_another_promise_does_not_count() -> None:
    def fails(schedule: Schedule) -> Failure:
        return Failure(1, 30.0, "promise" if len(schedule.steps) > 6 else "another", "how")

    found = Shrunk(BEFORE, fails(BEFORE), fails, cuts_bodies=False, is_over=lambda: False)
    found.shrink()
    assert len(found.schedule.steps) == 7
    assert found.failure.promise == "promise"


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("ForgetsAField", 1),
        pytest.param("TakesFromASet", 8, marks=pytest.mark.long),
        pytest.param("READS_ITS_OWN_STATE", 4, marks=pytest.mark.long),
        pytest.param("BOUNDED", 6, marks=pytest.mark.long),
    ],
)
def test_a_wrong_machine_has_a_short_run_that_fails_again(name: str, steps: int) -> None:
    service = f"tests.jepsen_like.services:{name}"
    broken = run_campaign(Plan(0, 5, service=service), jobs=1).broken
    assert broken is not None
    found = shrunk(service, broken.seed, None, None, budget_s=services.LONGEST_SEARCH_S)
    assert found is not None
    assert len(found.schedule.steps) <= steps
    with pytest.raises(Failure) as caught:
        jepsen_like.run_schedule(getattr(services, name), found.schedule)
    assert caught.value.promise == found.failure.promise


def test_a_pasted_test_is_a_test_that_runs_its_schedule() -> None:
    call = Call('say "it\'s"', None, 1, b"1")
    steps = [Step(0.5, "append", body=b"it's \x00"), Step(1.0, "kill", "n1", 0.25)]
    schedule = Schedule(3, 3, 1.5, [*steps, Step(1.2, "append", call=call)])
    text = pasted_test("tests.jepsen_like.services:Register", schedule, Failure(3, 1, "a b", "how"))
    names: dict[str, object] = {}
    exec(compile(text, "pasted", "exec"), names)
    ran: list[object] = []
    names["jepsen_like"] = type("Fake", (), {"run_schedule": lambda *told: ran.extend(told)})
    test = names["test_a_b"]
    assert callable(test)
    test()
    assert ran == [services.Register, schedule._replace(steps=list(schedule.steps))]


WRONG = """
class Tally:
    def __init__(self):
        self.count = 0
        self.last = ""

    def apply(self, entries):
        self.count += len(entries)
        self.last = entries[-1].body.hex()
        return [None] * len(entries)

    def snapshot(self):
        return [b"%d" % self.count]

    def restore(self, chunks):
        self.count = int(b"".join(chunks))
"""
RIGHT = WRONG.replace('[b"%d" % self.count]', '[b"%d %s" % (self.count, self.last.encode())]')
RIGHT = RIGHT.replace(
    'self.count = int(b"".join(chunks))',
    'count, self.last = b"".join(chunks).decode().split(" ")\n        self.count = int(count)',
)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the pasted test needs none of them
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_command_prints_a_test_that_fails_until_the_machine_is_right(tmp_path: Path) -> None:
    module = tmp_path / "tally.py"
    module.write_text(WRONG)
    words = ["simulate", "--service", "tally:Tally", "--seeds", "9", "--jobs", "1", "--json"]
    told = run(tmp_path, "jepsen_like", *words, "--shrink-seconds", "1", "--diagram", "run.html")
    assert told.returncode == 1, told.stderr
    assert "A promise was broken" in (tmp_path / "run.html").read_text()
    short = json.loads(told.stdout)["failure"]["shrunk"]
    assert short["promise"] == "a snapshot has the whole state"
    (tmp_path / "test_pasted.py").write_text(short["test"])
    pytest_words = ["pytest", "-q", "-p", "no:cacheprovider", "test_pasted.py"]
    failed = run(tmp_path, *pytest_words)
    assert "a snapshot has the whole state" in failed.stdout
    assert "1 failed" in failed.stdout
    module.write_text(RIGHT)
    assert "1 passed" in run(tmp_path, *pytest_words).stdout
