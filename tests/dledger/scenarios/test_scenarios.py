"""Plays every file of tests/dledger/scenarios, and shows that the language is strict.

docs/scenarios.md describes the language, and says where each scenario comes from.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dledger.core.raft_promises import PromiseBroken
from tests.dledger.scenarios.scenario_language import (
    Scenario,
    ScenarioFailed,
    ScenarioMalformed,
    play_file,
)

FILES = sorted((Path(__file__).parent).glob("*.scenario"))

LEADER = """
members n1 n2 n3
timeout n1
settle
run 25
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_says(path: Path) -> None:
    play_file(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_begins_by_saying_what_it_is_about(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert max(map(len, lines)) <= 100


# --- the language ---------------------------------------------------------------------------------


def played(text: str) -> Scenario:
    scenario = Scenario("story")
    for line in text.strip().splitlines():
        scenario.play(line)
    return scenario


@pytest.mark.parametrize(
    ("line", "expected", "found"),
    [
        ("expect n2: role leader", "n2 role: expected leader", "found follower"),
        ("expect n1 n2: term 1, log 1x2", "n1 log: expected 1x2", "found 1"),
        ("expect n1 > n2: match 3", "n1 > n2 match: expected 3", "found 0"),
        ("expect n2 > n1: match 3", "n2 sends nothing to n1", ""),
        ("expect messages: heartbeat", "expected heartbeat", "found none"),
        ("expect sent vote: 7", "sent vote: expected 7", "found 2"),
        ("expect n9: role leader", "there is no member n9", ""),
        ("fails NotLeader: propose n1 1", "expected NotLeader", "found none"),
        ("fails LogFull: propose n2 1", "expected LogFull", "found NotLeader"),
        ("propose n2 1", "NotLeader", "ask n1"),
        ("deliver", "no such message is on its way, only: none", ""),
        ("drop append n1 > n2", "no such message", ""),
        ("repeat heartbeat", "no such message", ""),
        ("sync ends n1", "no sync of n1 has begun", ""),
        ("restart n1", "n1 is running", ""),
        ("mend", "nothing is cut", ""),
        ("release", "nothing is held", ""),
        ("lose n1 after 0", "n1 is running", ""),
        ("change n2: remove n1", "NotLeader", "ask n1"),
        ("fails NotJoint: change n1: remove n3", "expected NotJoint", "found none"),
    ],
)
def test_a_line_that_does_not_go_as_it_says_names_its_place(
    line: str, expected: str, found: str
) -> None:
    with pytest.raises(ScenarioFailed) as caught:
        played(LEADER + line)
    text = str(caught.value)
    assert text.startswith(f"story:5: {line}\n")
    assert expected in text
    assert found in text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("elect n1", "'elect' is no verb"),
        ("deliver  append", "single spaces"),
        ("deliver noise", "'noise' is no kind of message"),
        ("deliver append 3 4", "the form is"),
        ("expect n1 role leader", "the form is: expect"),
        ("expect n1: mood calm", "'mood' is nothing a member has"),
        ("expect n1 > n2: mood calm", "'mood' is nothing a leader knows"),
        ("expect n1: log 1x1", "written as its term alone"),
        ("expect messages: noise", "'noise' is no kind"),
        ("wait soon", "no number above 0"),
        ("wait 0", "no number above 0"),
        ("propose n1", "the form is: propose"),
        ("propose n1 1 as n2", "n2 is somebody's name already"),
        ("read n1", "the form is: read"),
        ("fails NotLeader", "the form is: fails"),
        ("discard n1", "the form is: discard"),
        ("log n1: 1", "log must come before anything happens"),
        ("cut", "say what"),
        ("learners n4", "learners must come before anything happens"),
        ("join n1", "and new"),
        ("change n1", "the form is: change"),
        ("change n1 slowly: remove n2", "the form is: change"),
        ("change n1: raise n2", "'raise' is no change"),
        ("leave n1 now", "the form is: leave"),
    ],
)
def test_a_line_that_is_not_of_the_language_is_refused(line: str, problem: str) -> None:
    with pytest.raises(ScenarioMalformed, match=re.escape(problem)):
        played(LEADER + line)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("timeout n1", "the first line must be"),
        ("members n1 n1", "each different"),
        ("members N1", "is no name"),
        ("members n1\nmembers n2", "once"),
        ("learners n1", "after the members"),
        ("members n1\nlearners n1", "and new"),
        ("members n1\nlog n2: 1", "not one of the members"),
        ("members n1\nlog n1: 2 1", "never decrease"),
        ("members n1\nlog n1: one", "is no term"),
        ("members n1\nrecord n1: vote n1", "the form is: record"),
    ],
)
def test_a_group_that_cannot_be_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ScenarioMalformed, match=re.escape(problem)):
        played(text)


def test_a_file_that_expects_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "idle.scenario").write_text(LEADER, encoding="utf-8")
    with pytest.raises(ScenarioMalformed, match=r"idle\.scenario: it expects nothing"):
        play_file(tmp_path / "idle.scenario")


def test_a_member_that_is_down_takes_part_in_nothing() -> None:
    scenario = played(LEADER + "crash n2\nexpect n2: role down\nwait 100\ndeliver n1 > n2")
    with pytest.raises(ScenarioFailed, match="n2 is down"):
        scenario.play("sync n2")
    scenario.play("restart n2")
    scenario.play("expect n2: role follower, log 1, committed none")


def test_what_is_held_stays_and_what_is_cut_is_lost() -> None:
    scenario = played(LEADER + "hold append n1 > n2\ncut n1 > n3\npropose n1 1 as red\nsettle")
    scenario.play("expect messages: append 1")
    scenario.play("expect red: open")
    scenario.play("release")
    scenario.play("settle")
    scenario.play("expect red: committed")
    scenario.play("expect n3: log 1")


def test_a_broken_promise_fails_the_line_that_breaks_it() -> None:
    scenario = played(LEADER + "propose n1 1\nrepeat append n1 > n2\ndeliver first append n1 > n2")
    # What a core with a mistake would do: believe that its disk has what it only wrote.
    core = scenario.group.members["n2"].up
    core.state.durable = core.view.last_index
    with pytest.raises(ScenarioFailed, match="n2 acknowledges 1, its disk has 0") as caught:
        scenario.play("deliver append n1 > n2")
    assert isinstance(caught.value.__cause__, PromiseBroken)
