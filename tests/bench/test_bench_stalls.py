"""Whom the benchmark of pauses stops."""

from __future__ import annotations

from bench.stalls import ALL, FOLLOWER, FOLLOWERS, LEADER, paused

NAMES = ["n0", "n1", "n2"]


def test_each_row_pauses_whom_it_names() -> None:
    assert paused(LEADER, "n1", NAMES) == ["n1"]
    assert paused(ALL, "n1", NAMES) == ["n1", "n0", "n2"]
    assert paused(FOLLOWER, "n1", NAMES) == ["n0"]
    assert paused(FOLLOWERS, "n1", NAMES) == ["n0", "n2"]
