"""What `jepsen-like run` says of a user's service: what was raised where, and what differs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.chaos.members.__main__ import _told as told_by_member
from jepsen_like.chaos.members.advice import is_bug, last_words
from jepsen_like.chaos.members_compared import (
    MAX_ROUNDS,
    Look,
    looks_at_the_same,
    state_differences,
)
from jepsen_like.users_code import raised_in

GROUP_OF_ERRORS = """\
  + Exception Group Traceback (most recent call last):
  |   File "member.py", line 84, in main
  | ExceptionGroup: Exceptions from Trio nursery (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "shop.py", line 5, in state
    | KeyError: 'tea'
    +------------------------------------
"""


def test_frames_around_several_errors_are_no_last_words() -> None:
    assert last_words(GROUP_OF_ERRORS) == "KeyError: 'tea'"
    assert is_bug(GROUP_OF_ERRORS)


def test_states_that_differ_are_told_by_the_first_place_and_both_values() -> None:
    states = {
        "n0": {"a": 1, "b": {"c": [1, 2]}},
        "n1": {"a": 1, "b": {"c": [1, 2]}},
        "n2": {"a": 1, "b": {"c": [1, 3]}},
        "n3": {"a": 1},
    }
    assert list(state_differences(states)) == [
        "the states of n0 and n2 differ in the end: on n0, ['b']['c'][1] is 2, not 3",
        "the states of n0 and n3 differ in the end: on n0, it is "
        "{'a': 1, 'b': {'c': [1, 2]}}, not {'a': 1}",
    ]
    assert list(state_differences({})) == []


async def test_states_are_compared_behind_the_same_entry_though_a_late_call_is_applied() -> None:
    applied = 7
    asked: list[str] = []

    async def look(name: str) -> Look | None:
        nonlocal applied
        asked.append(name)
        shown = Look(applied, f"the state behind {applied}", None)
        if len(asked) == 1:
            applied += 1  # a call that its client gave up comes between two looks
        return shown

    seen = await looks_at_the_same(("n0", "n1", "n2"), look)
    assert {name: each.after for name, each in seen.items()} == {"n0": 8, "n1": 8, "n2": 8}
    assert list(state_differences({name: each.state for name, each in seen.items()})) == []
    assert asked == ["n0", "n1", "n2", "n0"]


async def test_a_member_that_stays_behind_or_shows_nothing_is_not_waited_for_without_end() -> None:
    asked: list[str] = []

    async def look(name: str) -> Look | None:
        asked.append(name)
        return None if name == "n2" else Look(5 if name == "n0" else 6, "", None)

    seen = await looks_at_the_same(("n0", "n1", "n2"), look)
    assert {name: each.after for name, each in seen.items()} == {"n0": 5, "n1": 6}
    assert asked.count("n0") == MAX_ROUNDS
    assert asked.count("n2") == 1


def test_an_error_of_the_users_is_told_with_the_method_that_was_called() -> None:
    def inner() -> None:
        raise KeyError("tea")

    def state() -> None:
        inner()

    with pytest.raises(KeyError) as caught:
        state()
    told = told_by_member(caught.value)
    assert told == raised_in(caught.value)
    assert told.startswith("KeyError: 'tea' (test_findings_told.py:")
    assert "in inner, called by " in told


SERVICE = """
from jepsen_like.chaos.service import Call


class Machine:
    def apply(self, entries):
        return [None] * len(entries)


class Reads:
    machine = Machine

    def generate(self, caller):
        return Call("set")

    def answered(self, call, result):
        return result["x"]
"""


def test_an_early_acknowledgement_is_refused_where_results_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_results.py").write_text(SERVICE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["run", "--service", "users_results:Reads", "--dirty", "early-ack"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 2
    assert "answered() of users_results:Reads needs one" in told.output
