"""What a process asks its system."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.retention.disk_usage import used_percent
from dledger.serving.platform import disk_space


@pytest.mark.parametrize("kept", [0, 50, 700])
def test_members_and_brokers_say_as_df_does_how_full_a_disk_is(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of 1000 blocks 200 are used, and some are kept for the superuser.
    found = SimpleNamespace(f_blocks=1000, f_bfree=800, f_bavail=800 - kept, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    space = disk_space(Path("x"))
    assert space.free == (800 - kept) * 4096
    share = 1 - space.free / space.total
    assert share == pytest.approx(200 / (1000 - kept))
    assert 100 * share == pytest.approx(used_percent(Path("x")))
