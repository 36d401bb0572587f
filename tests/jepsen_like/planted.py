"""Which planted mistakes every run of the tests looks for. `make test-long` looks for all."""

from collections.abc import Iterable
from typing import Final

import pytest

# Some of each tier: those that stand for a promise each, and show soonest.
EVERY_TIME: Final = frozenset(
    {
        # members
        "acknowledge-before-sync",
        "commit-older-term",
        "configuration-on-append",
        "half-is-a-quorum",
        "lease-from-answer",
        "restored-folder-is-believed",
        "session-table-not-consulted",
        "snapshot-applied-from-the-log",
        "torn-tail-kept",
        "truncate-without-conflict",
        "vote-not-durable",
        # hosts
        "appends-outlive-their-node",
        "calls-outlive-their-node",
        "session-renumbered",
        "tail-skips-an-entry",
        # brokers
        "conditions-ignored",
        "delivered-early",
        "file-before-the-first-unit-missing",
        "half-messages-seen",
        "locks-of-two",
        "offsets-acknowledged-early",
        "pops-not-in-snapshots",
        "retention-drops-what-waits",
    }
)


def planted(names: Iterable[str]) -> list[object]:
    """The names as parameters of a test; all but those of EVERY_TIME are for the long run."""
    return [
        pytest.param(name, marks=() if name in EVERY_TIME else pytest.mark.long)
        for name in sorted(names)
    ]
