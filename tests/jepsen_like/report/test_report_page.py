"""The report of a run: what stands in it, that it stays small, and how a browser shows it."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen_like.checkers.report import Problem, Report, Verdict
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.report.buckets import buckets
from jepsen_like.report.failing_window import OPERATIONS_MAX, failing_window
from jepsen_like.report.page import page
from jepsen_like.report.told_run import Checked, Death, Fault, GapRow, Link, RunExit, ToldRun
from tests.picture_texts import PAIRS_IN_A_BROWSER, without_policy

SECOND_NS = 1_000_000_000
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def operations(number: int, processes: int = 10, seed: int = 1) -> list[Operation]:
    chance = random.Random(seed)
    now_ns = [0] * processes
    made = []
    for _ in range(number):
        process = now_ns.index(min(now_ns))
        begin_ns = now_ns[process]
        end_ns = begin_ns + chance.randrange(1, 20_000_000)
        outcome = chance.choices((EventType.OK, EventType.FAIL, EventType.INFO), (90, 5, 5))[0]
        now_ns[process] = end_ns + chance.randrange(1_000_000)
        key = f"k{begin_ns // SECOND_NS}"
        made.append(
            Operation(process, "write", key, chance.randrange(5), 0, begin_ns, f"n{process % 3}")
        )
        made[-1].outcome, made[-1].ended_ns = outcome, end_ns
    for at, one in enumerate(made):
        one.invoked_line, one.ended_line = 2 * at + 2, 2 * at + 3
    return made


def run_of(history: Sequence[Operation], problem: Problem | None = None) -> ToldRun:
    verdict = Verdict.VALID if problem is None else Verdict.INVALID
    problems = () if problem is None else (problem,)
    return ToldRun(
        title="register under kill and halves on 3 nodes",
        outcome=RunExit.NOTHING_FOUND if problem is None else RunExit.VIOLATION,
        reason="all keys are linearizable" if problem is None else "k1 is not linearizable",
        command="jepsen-like run --workload register --seed 1",
        facts=[("seed", "1")],
        operations=history,
        checks=[Checked("register", Report(verdict, "looked at all", problems))],
        faults=[
            Fault("kill leader", "n1", SECOND_NS, 2 * SECOND_NS),
            Fault("halves", "n1 | n2 n3", 3 * SECOND_NS, None),
        ],
        deaths=[Death("n1", SECOND_NS, "killed", "started again after 0.5 s", True)],
        gaps=[GapRow("kill leader", "writes", 3, 3, 0, 0.09, 0.12, 0.13)],
        left_out=["disk full: not root"],
        links=[Link("history.jsonl", "history.jsonl")],
    )


def test_the_verdict_stands_before_everything_else_and_the_command_below_it() -> None:
    text = page(run_of(operations(500)))
    body = text[text.index("<body>") :]
    places = [body.index(one) for one in ("Nothing found", ">jepsen-like<", "<svg", "90 ms")]
    assert places == sorted(places)
    assert "violation" not in body


def test_a_violation_shows_the_operations_that_the_problem_names() -> None:
    history = operations(500)
    named = history[100]
    problem = Problem("not linearizable", "nothing explains this", (named.invoked_line,))
    text = page(run_of(history, problem))
    assert "nothing explains this" in text
    assert text.index("What is wrong") < text.index("Faults, latency")
    assert len(re.findall(r'class="\w+ named"', text)) == 2  # one for each width


def test_what_is_allowed_is_counted_below_what_is_wrong_and_not_drawn() -> None:
    history = operations(50)
    problems = (Problem("lost", "7 was lost", (20,)), Problem("duplicated", "5 came twice", (30,)))
    counts = {"lost": 1, "duplicated": 1_200}
    report = Report(Verdict.INVALID, "1 lost", problems, counts, ["duplicated"])
    told = page(replace(run_of(history), checks=[Checked("queue", report)]))
    assert "lost: 7 was lost" in told
    assert "5 came twice" not in told
    assert "Allowed, and not counted: 1,200 duplicated." in told


def test_values_of_a_history_are_text_whatever_they_hold() -> None:
    history = operations(50)
    hostile = "</svg></style><script>alert(1)</script>&\x00\x1b[31m\ud800"
    history[10].value = hostile
    run = run_of(history, Problem("odd", hostile, (history[10].invoked_line,)))
    deaths = [Death(hostile, 5, hostile, hostile, True)]
    run = replace(run, title=hostile, command=hostile, deaths=deaths)
    text = page(run)
    assert "<script" not in text
    assert not re.search(r"[\x00-\x08\x0b\x0e-\x1f]", text)
    assert text.encode()


@pytest.mark.parametrize("count", [6_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_page_of_many_operations_stays_below_two_mebibytes(count: int) -> None:
    faults = [Fault("flap", "n1", at * 1000, at * 1000 + 500) for at in range(5000)]
    run = replace(run_of(operations(count, processes=60)), faults=faults)
    text = page(run)
    assert len(text.encode()) < 2 << 20
    assert "of 5000 faults" in text
    assert "20 more" in text  # clients


def test_what_consumers_are_told_counts_as_operations_and_has_no_latency() -> None:
    history = operations(3, processes=1)
    for one, outcome in zip(history, (EventType.OK, EventType.OK, EventType.FAIL), strict=True):
        one.outcome, one.ended_ns = outcome, one.invoked_ns + 5_000_000
    history[1].function, history[1].ended_ns = "receive", history[1].invoked_ns + 30_000
    ((span,), _) = buckets(history, 0, SECOND_NS, 1, ("receive", "drain"))
    assert (span.ok, span.failed, span.timed) == (2, 1, 1)
    assert span.p50_ns == span.p99_ns == 5_000_000
    told = page(replace(run_of(history), deliveries=("receive", "drain")))
    row = re.search(r"<td[^>]*>receive</td>(.*?)</tr>", told, re.DOTALL)
    assert row is not None
    assert re.findall(r">([^<]+)</td>", row[1]) == ["1", "0", "0", "-", "-", "-"]


def test_the_command_breaks_between_words_and_is_copied_as_it_is() -> None:
    told = page(run_of(operations(1)))
    (command,) = re.findall(r"<pre>(.*?)</pre>", told, re.DOTALL)
    assert re.sub(r"<[^>]+>", "", command) == "jepsen-like run --workload register --seed 1"
    assert '<span class="whole">--workload</span> ' in command


def test_a_run_without_any_operation_has_a_page_too() -> None:
    empty = replace(run_of([]), faults=[], deaths=[], gaps=[], outcome=RunExit.HARNESS_FAILED)
    text = page(empty)
    assert "The harness failed" in text
    assert "<svg" not in text


def test_a_window_shows_what_is_named_first_and_only_so_much_beside_it() -> None:
    history = operations(3000)
    for one in history:
        one.key = "same"
    named = history[1000:1005]
    problem = Problem("odd", "how", tuple(one.invoked_line for one in named))
    window = failing_window(problem, history, [], 0)
    assert window is not None
    assert [window.operations[at] for at in sorted(window.named)] == named
    assert len(window.operations) <= OPERATIONS_MAX
    assert failing_window(Problem("odd", "how"), history, [], 0) is None


@given(st.integers(1, 400), st.integers(1, 300), st.integers(0, 10**6))
def test_every_operation_is_in_one_span(number: int, spans: int, seed: int) -> None:
    history = operations(number, seed=seed)
    end_ns = max(one.ended_ns or 0 for one in history)
    made, span_ns = buckets(history, 0, end_ns, spans)
    assert sum(one.ok + one.failed + one.unknown for one in made) == number
    assert len(made) <= spans
    assert span_ns * len(made) >= end_ns


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [420, 1280])
def test_a_browser_shows_the_whole_page_without_scrolling_sideways(
    tmp_path: Path, width: int
) -> None:
    history = operations(3000)
    problem = Problem("odd", "how", (history[100].invoked_line,))
    measure = """<script>addEventListener("load", () => {
      const drawn = [...document.querySelectorAll("svg")];
      const pictures = drawn.map(one => one.getBoundingClientRect()).filter(one => one.width);
      document.title = JSON.stringify([document.documentElement.scrollWidth, innerWidth,
        pictures.length, Math.min(...pictures.map(one => one.width)),
        Math.min(...pictures.map(one => one.height)), PAIRS]);
    })</script></body>""".replace("PAIRS", PAIRS_IN_A_BROWSER)
    file = tmp_path / "report.html"
    file.write_text(without_policy(page(run_of(history, problem))).replace("</body>", measure))
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--window-size={width},1000", f"--user-data-dir={tmp_path / 'browser'}"]
    shown = subprocess.run(
        [*command, file.as_uri()], capture_output=True, text=True, timeout=60, check=True
    )
    title = re.search(r"<title>\[(.*)\]</title>", shown.stdout)
    assert title is not None
    content, inside, pictures, narrowest, lowest, pairs = map(float, title[1].split(","))
    assert content <= inside
    assert pictures == 3
    assert narrowest >= 376
    assert pairs == 0
    assert lowest >= 50
