from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from dledger_spark.scratch_folder import scratch_folder


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_goes_with_its_block() -> None:
    with scratch_folder() as folder:
        (Path(folder) / "sub").mkdir()
        (Path(folder) / "sub" / "file").write_text("x")
    assert not Path(folder).exists()


def test_a_folder_whose_owner_died_goes_with_the_next_one(tmp_path: Path) -> None:
    left = tmp_path / "dledger-spark-left"
    left.mkdir()
    (left / "lock").touch()
    (left / "blocks").write_bytes(bytes(10))
    with scratch_folder():
        assert not left.exists()


def test_a_folder_in_use_and_one_just_being_made_stay(tmp_path: Path) -> None:
    fresh = tmp_path / "dledger-spark-fresh"
    fresh.mkdir()
    with scratch_folder() as first, scratch_folder() as second:
        assert first != second
        assert Path(first).exists()
    assert fresh.exists()
