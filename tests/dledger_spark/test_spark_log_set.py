"""Which logs `open_logs` finds below a path, and which node's copy it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.entry import Body
from dledger_spark import log_set
from dledger_spark.errors import LogDamaged, LogFolderInvalid
from dledger_spark.log_set import open_logs
from dledger_spark.scan import arrow_batches

LogWriter = Callable[..., Path]
BODIES: list[Body] = [b"entry"] * 9


def test_a_folder_of_one_node_or_above_it_is_one_log(write_log: LogWriter) -> None:
    folder = write_log(BODIES)
    for path in (folder, folder.parent, folder.parent.parent):
        found = open_logs(str(path))
        assert [(log.path, log.group) for log in found.logs] == [(str(folder), "g")]
        assert found.of("g").committed == 8


def test_of_a_groups_nodes_the_one_that_is_furthest_ahead_is_taken(
    write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "logs"
    for node, committed in (("a", 3), ("b", 7), ("c", 7), ("d", 5)):
        write_log(BODIES, base=base / node, committed=committed)
    found = open_logs(str(base))
    assert [log.path for log in found.logs] == [str(base / "b" / "dledger-n0")]


@pytest.mark.parametrize("layout", ["{node}", "{group}/{node}"])
def test_each_of_several_groups_has_one_log(
    layout: str, write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "logs"
    for group in ("broker-b", "broker-a"):
        for node, committed in (("0", 2), ("1", 4)):
            place = layout.format(group=group, node=group[-1] + node)
            write_log(BODIES, base=base / place, committed=committed, group=group)
            (base / place / "consumequeue" / "topic").mkdir(parents=True)
    (base / "group.json").write_text("{}")
    found = open_logs(str(base))
    assert found.groups == ("broker-a", "broker-b")
    assert [log.committed for log in found.logs] == [4, 4]
    assert found.of("broker-b").path.endswith("b1/dledger-n0")
    with pytest.raises(LogFolderInvalid, match="no log of group 'c', only of 'broker-a', 'brok"):
        found.of("c")


def test_a_log_of_java_stands_alone(write_log: LogWriter, tmp_path: Path) -> None:
    base = tmp_path / "logs"
    java = write_log(BODIES, base=base / "one")
    (java / "hard-state").unlink()
    assert open_logs(str(base)).groups == (None,)
    write_log(BODIES, base=base / "two")
    with pytest.raises(LogFolderInvalid, match=f"holds 2 logs, and {java} does not say"):
        open_logs(str(base))
    assert open_logs(str(java)).of(None).committed is None


def test_every_row_says_its_group(write_log: LogWriter) -> None:
    folder = write_log(BODIES, group="orders")
    assert next(arrow_batches(str(folder))).column("raft_group").to_pylist() == ["orders"] * 9
    (folder / "hard-state").unlink()
    rows = next(arrow_batches(str(folder), 0, "end", columns=["raft_group"])).to_pylist()
    assert rows == [{"raft_group": None}] * 9


def test_what_holds_no_log_is_one_line_that_says_so(
    write_log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for path, problem in (
        (tmp_path / "none", "does not exist"),
        (tmp_path / "file", "is a file"),
        (tmp_path, "holds no log"),
    ):
        with pytest.raises(LogFolderInvalid, match=problem):
            open_logs(str(path))
    folder = write_log(BODIES, base=tmp_path / "a" / "b" / "c")
    with pytest.raises(LogFolderInvalid, match="holds no log"):
        open_logs(str(tmp_path))
    monkeypatch.setattr(log_set, "MAX_FOLDERS", 0)
    with pytest.raises(LogFolderInvalid, match="more than 0 folders"):
        open_logs(str(folder.parent))


def test_a_node_whose_record_cannot_be_read_is_not_passed_over(
    write_log: LogWriter, tmp_path: Path
) -> None:
    base = tmp_path / "logs"
    folder = write_log(BODIES, base=base / "a")
    write_log(BODIES, base=base / "b")
    (folder / "hard-state").write_bytes(bytes(9000))
    with pytest.raises(LogDamaged, match="neither slot"):
        open_logs(str(base))
