import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import checking
from bench.checking import LOADS, Load, made, measure


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_small_history_of_each_load_gets_its_verdict(load: Load) -> None:
    # No load drains its queues, so what nobody received yet leaves that verdict open.
    expected = "invalid" if load.wrong else "unknown" if load.model == "queue" else "valid"
    small = load._replace(operations=400, keys=min(load.keys, 4))
    assert measure(small)["verdict"] == expected


def test_a_load_is_the_same_in_every_run() -> None:
    load = LOADS[0]._replace(operations=100)
    assert made(load).operations == made(load).operations
    assert made(load, seed=8).operations != made(load).operations


def test_the_command_tells_a_line_for_each_load_and_keeps_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "LOADS", [LOADS[0]._replace(operations=100)])
    kept = tmp_path / "rows.json"
    told = CliRunner().invoke(checking.checking, ["--json", str(kept)], catch_exceptions=False)
    assert told.output.endswith("register, one key: 5 clients, 100 operations, 1 keys: valid\n")
    assert [row["verdict"] for row in json.loads(kept.read_text())] == ["valid"]
