"""Which call makes things durable, on which system."""

from __future__ import annotations

import fcntl
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.store import sync_calls
from dledger.store.disk import OsDisk

FULL_SYNC = 51


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was called, by name."""
    made: list[str] = []

    def control(_: int, command: int) -> int:
        made.append(f"fcntl {command}")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_SYNC, raising=False)
    monkeypatch.setattr(os, "fdatasync", lambda _: made.append("fdatasync"), raising=False)
    monkeypatch.setattr(os, "fsync", lambda _: made.append("fsync"))
    yield made
    monkeypatch.undo()
    importlib.reload(sync_calls)


def test_linux_syncs_data_and_names(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    importlib.reload(sync_calls)
    sync_calls.sync_data(0)
    sync_calls.sync_names(0)
    assert calls == ["fdatasync", "fsync"]


def test_macos_has_the_drive_write_its_cache(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    importlib.reload(sync_calls)
    sync_calls.sync_data(0)
    sync_calls.sync_names(0)
    assert calls == [f"fcntl {FULL_SYNC}"] * 2


def test_the_disk_syncs_by_these_calls(tmp_path: Path, calls: list[str]) -> None:
    disk = OsDisk()
    file = disk.create(str(tmp_path / "a"))
    file.sync()
    file.close()
    disk.sync_folder(str(tmp_path))
    assert calls == ["fdatasync", "fsync"]


def test_the_name_of_each_new_folder_is_synced_in_the_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    disk = OsDisk()
    monkeypatch.setattr(OsDisk, "sync_folder", lambda _, path: synced.append(path))
    disk.make_folder(f"{tmp_path}/a/b/c")
    assert synced == [f"{tmp_path}", f"{tmp_path}/a", f"{tmp_path}/a/b"]
