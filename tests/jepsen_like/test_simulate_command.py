import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jepsen_like.__main__ import main
from jepsen_like.mutants.mutant import all_mutants
from tests.jepsen_like.interrupted import interrupted


def test_good_seeds_end_with_status_0_and_what_was_reached() -> None:
    result = CliRunner().invoke(
        main, ["simulate", "--seeds", "3", "--jobs", "1", "--seconds", "3", "--nodes", "3"]
    )
    assert result.exit_code == 0
    assert "3 seeds in" in result.output
    assert "elections" in result.output
    assert "no promise was broken" in result.output


def test_a_broken_promise_ends_with_status_1_and_the_way_to_see_it_again(tmp_path: Path) -> None:
    trace = tmp_path / "trace.txt"
    words = ["simulate", "--seeds", "9", "--jobs", "1", "--seeded-bug", "vote-not-durable"]
    result = CliRunner().invoke(main, [*words, "--trace", str(trace)])
    assert result.exit_code == 1
    assert "seed 0, after " in result.output
    assert "votes are durable" in result.output
    again = next(line for line in result.output.splitlines() if line.startswith("again: "))
    assert again.endswith(
        "simulate --seed 0 --seeds 1 --seeded-bug vote-not-durable --trace seed-0.txt"
    )
    assert trace.read_text().splitlines()[0].split()[1:3] == ["n0", "starts,"]
    rerun = CliRunner().invoke(main, [*again.split()[2:-2], "--jobs", "1", "--json"])
    assert rerun.exit_code == 1


def test_json_is_one_object_and_nothing_else() -> None:
    words = ["simulate", "--seeds", "2", "--jobs", "1", "--seconds", "2", "--json"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["seeds"], told["failure"]) == (2, None)
    assert told["simulated_hours"] > 0
    assert told["coverage"]["elections"] >= 1


def test_json_names_the_seed_the_promise_and_the_command_of_a_failure() -> None:
    words = [
        "simulate",
        "--seeds",
        "5",
        "--jobs",
        "1",
        "--json",
        "--seeded-bug",
        "vote-not-durable",
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    failure = json.loads(result.stdout)["failure"]
    assert failure["seed"] >= 0
    assert failure["promise"]
    assert f"--seed {failure['seed']} " in failure["again"]


def test_the_seeded_bugs_are_listed_with_what_they_are() -> None:
    result = CliRunner().invoke(main, ["simulate", "--list-seeded-bugs"])
    assert result.exit_code == 0
    assert all(
        f"{bug.name}: {bug.what}" in result.output for bug in all_mutants().values() if bug.tier
    )


def test_an_unknown_seeded_bug_is_refused() -> None:
    result = CliRunner().invoke(main, ["simulate", "--seeded-bug", "none-such"])
    assert result.exit_code == 2
    assert "none-such" in result.output


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e9", "-1", "0"])
def test_times_that_no_run_comes_to_the_end_of_are_refused(seconds: str) -> None:
    for command, option in (("simulate", "--seconds"), ("run", "--time"), ("suite", "--time")):
        result = CliRunner().invoke(main, [command, option, seconds])
        assert result.exit_code == 2
        assert f"'{option}'" in result.output


def test_a_trace_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    words = ["simulate", "--seeds", "100000", "--trace", str(tmp_path / "none" / "trace.txt")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "trace.txt cannot be written: No such file or directory" in result.output


def test_hosts_are_another_tier_of_the_same_command() -> None:
    words = ["simulate", "--tier", "hosts", "--seeds", "1", "--seconds", "1", "--jobs", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert "hosts opened" in result.output
    assert "no promise was broken" in result.output


def test_a_failing_seed_of_hosts_names_its_tier_in_the_way_to_see_it_again() -> None:
    words = ["simulate", "--tier", "hosts", "--seeds", "6", "--jobs", "1"]
    result = CliRunner().invoke(main, [*words, "--seeded-bug", "tail-skips-an-entry"])
    assert result.exit_code == 1
    assert "followers see every entry" in result.output
    again = next(line for line in result.output.splitlines() if line.startswith("again: "))
    assert "--tier hosts" in again


def test_a_bug_of_another_tier_is_refused() -> None:
    words = ["simulate", "--tier", "hosts", "--seeded-bug", "vote-twice"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "vote-twice is a bug of another tier" in result.output


def test_ctrl_c_ends_the_command_and_its_workers_without_a_word() -> None:
    words = ["simulate", "--seeds", "100000", "--jobs", "2"]
    assert interrupted(words, 2) == (130, b"")
