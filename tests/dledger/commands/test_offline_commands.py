"""`dledger verify` and `dump` say what they cannot read, in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dledger.commands.offline_commands import dump, verify
from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.sessions.session_entry import MARK
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500)


def folder_of(base: Path, name: str, count: int = 4, body: bytes = b"entry") -> Path:
    store = open_store(OsDisk(), str(base), CONFIG, "g", name)
    store.append(1, Magic.NORMAL, [body] * count)
    store.begin_sync(HardState(1, name, 1)).run()
    store.close()
    return base / f"dledger-{name}"


def cannot_be_read(path: Path) -> None:
    """Not even by root, for whom permissions do not count."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("file", ["hard-state", "data/00000000000000000000"])
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_compared(
    tmp_path: Path, file: str
) -> None:
    folders = [folder_of(tmp_path, name) for name in ("n0", "n1", "n2")]
    cannot_be_read(folders[1] / file)
    found = CliRunner().invoke(verify, [str(folder) for folder in folders])
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit)
    assert f"{folders[1]}/{file} cannot be read: Is a directory" in found.output
    assert "equal" not in found.output


@pytest.mark.parametrize("file", ["generation", "orphans", "birth"])
def test_a_small_file_without_which_no_member_starts_is_a_problem(
    tmp_path: Path, file: str
) -> None:
    folder = folder_of(tmp_path, "n0")
    assert CliRunner().invoke(verify, [str(folder)]).exit_code == 0
    (folder / file).write_bytes(b"")
    found = CliRunner().invoke(verify, [str(folder)])
    assert found.exit_code == 1
    assert f"{folder}/{file}" in found.output


def test_a_folder_of_dledger_mq_up_stands_for_its_members_which_are_compared_by_group(
    tmp_path: Path,
) -> None:
    one, two, single = tmp_path / "one", tmp_path / "two", tmp_path / "single"
    for name in ("n0", "n1"):
        folder_of(one / name, name)  # DIR/<node>
        for group, body in (("a", b"entry"), ("b", b"other")):
            folder_of(two / group / name, name, body=body)  # DIR/<group>/<node>
            folder_of(single / group / "n0", "n0", body=body) if name == "n0" else None
    for up, members, equal in ((one, 2, True), (two, 4, True), (single, 2, False)):
        found = CliRunner().invoke(verify, [str(up), "--json"])
        content = json.loads(found.output)
        assert (found.exit_code, content["first_difference"]) == (0, None)
        assert len({report["folder"] for report in content["folders"]}) == members
        said = CliRunner().invoke(verify, [str(up)]).output
        assert ("equal, entry by entry" in said) is equal
    # Members of one group that differ are found below the folder, too.
    folder_of(two / "b" / "n2", "n2", body=b"wrong")
    found = CliRunner().invoke(verify, [str(two)])
    assert (found.exit_code, "the folders differ from entry 0 on" in found.output) == (1, True)


def test_a_dump_of_what_cannot_be_read_ends_with_one_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "n0")
    cannot_be_read(folder / "hard-state")
    found: Result = CliRunner().invoke(dump, [str(folder)])
    assert found.exit_code == 1
    assert found.output.strip().endswith("hard-state cannot be read: Is a directory")
    assert isinstance(found.exception, SystemExit)


def test_verify_says_that_its_commit_index_is_what_the_folder_knows(tmp_path: Path) -> None:
    wide = {"COLUMNS": "400"}
    found = CliRunner().invoke(verify, [str(folder_of(tmp_path, "n0"))], env=wide)
    assert found.exit_code == 0
    assert "known committed" in found.output
    assert "`dledger status` may say more" in CliRunner().invoke(verify, ["--help"]).output.replace(
        "\n  ", " "
    )


def dumped(base: Path, bodies: list[bytes], *options: str) -> Result:
    store = open_store(OsDisk(), str(base), CONFIG, "g", "n0")
    store.append(1, Magic.NOOP, [b"no-op"])
    store.append(1, Magic.NORMAL, bodies)
    store.close()
    return CliRunner().invoke(dump, ["--bodies", *options, str(base / "dledger-n0")])


def test_a_dump_of_bodies_is_what_append_reads(tmp_path: Path) -> None:
    found = dumped(tmp_path, [b"one", b"", b"\xfftwo", b"three"], "--to", "3")
    assert (found.exit_code, found.stdout_bytes) == (0, b"one\n\n\xfftwo\n")


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"one\ntwo", "has a line end"), (MARK + b"\x01\x02", "belongs to a session")],
)
def test_a_dump_of_bodies_ends_before_what_append_would_change(
    tmp_path: Path, body: bytes, why: str
) -> None:
    found = dumped(tmp_path, [b"before", body, b"after"])
    assert found.exit_code == 1
    assert found.stdout_bytes.startswith(b"before\n")
    assert f"entry 2 {why}: append it by a program" in found.output
    assert b"after" not in found.stdout_bytes


def test_a_dump_of_bodies_is_no_json(tmp_path: Path) -> None:
    found = CliRunner().invoke(dump, ["--bodies", "--json", str(folder_of(tmp_path, "n0"))])
    assert found.exit_code == 2


def test_an_output_that_cannot_be_written_is_not_called_a_folder_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path, "n0")
    for form in ([], ["--json"], ["--bodies"]):
        with open("/dev/full", "wb") as full:
            command = [sys.executable, "-m", "dledger", "dump", str(folder), *form]
            ended = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert ended.returncode == 1, (form, ended.stderr)
        assert "no space" in ended.stderr
        assert str(folder) not in ended.stderr
