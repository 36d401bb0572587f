"""A member's retention without the rest of a broker, for tests of what it does at a look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.retention.keeper import LogKeeper
from broker.retention.policy import RetentionPolicy
from broker.serving.member import MEMBER, Member
from broker.settings.settings import SETTINGS
from tests.broker.parts_alone import parts_alone

NOW_MS, HOUR, USED_PERCENT = 7, 4, 0.0


class _Settings:
    """Those of retention, told anew each time."""

    def __init__(self, policy: Callable[[], Any]) -> None:
        self._policy = policy

    @property
    def now(self) -> Any:
        return SimpleNamespace(retention=self._policy())


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
    surroundings: Any = (lambda _now_ms: HOUR, lambda _folder: USED_PERCENT, None, None)
    return LogKeeper(
        parts_alone(
            machine.state,
            directory=folder,
            led_term=lambda: 1 if is_leading else None,
            wall_clock_ms=lambda: NOW_MS,
            made={MEMBER: Member(node, machine, *surroundings), SETTINGS: _Settings(policy)},
        )
    )
