"""A member's retention without the rest of a broker, for tests of what it does at a look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.retention.full_disk import FullDisk
from broker.retention.keeper import LogKeeper
from broker.retention.kept_back import KeptBack
from broker.retention.policy import RetentionPolicy

NOW_MS, HOUR, USED_PERCENT = 7, 4, 0.0


def keeper_alone(
    folder: Path,
    machine: Any,
    node: Any,
    *,
    policy: Callable[[], Any] = RetentionPolicy,
    is_leading: bool = False,
) -> LogKeeper:
    """One over a disk with room, which keeps nothing back, at a fixed time.

    Args:
        folder: of the log.
        machine: what it asks of the folded log.
        node: what it asks of the log.
        policy: tells when what goes.
        is_leading: whether the member leads; only then it is asked for decisions.
    """
    return LogKeeper(
        policy=policy,
        directory=folder,
        node=node,
        machine=machine,
        disk=FullDisk("broker-a"),
        kept_back=KeptBack(),
        is_leading=lambda: is_leading,
        wall_clock_ms=lambda: NOW_MS,
        hour_of=lambda _now_ms: HOUR,
        used_percent=lambda _folder: USED_PERCENT,
    )
