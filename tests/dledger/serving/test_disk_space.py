"""The space of a disk is told as `df` tells it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dledger.serving.platform import disk_space


def test_what_is_reserved_for_root_counts_as_neither_free_nor_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A disk of 1,000 blocks, 300 of them used, and 400 of the others reserved.
    found = SimpleNamespace(f_blocks=1000, f_bfree=700, f_bavail=300, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _folder: found)
    space = disk_space(tmp_path)
    assert (space.free // 4096, space.total // 4096) == (300, 600)
    assert 1 - space.free / space.total == 0.5
