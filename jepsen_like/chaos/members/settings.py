"""The settings of the process of a member: a file in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MemberSettings:
    """One member of the group of a run.

    `peers` are host:port as this member reaches them; `listen` and `clients` are where it listens
    for members and for clients of the run. `seeded_bug` names a mistake to make on purpose.
    """

    group: str
    node_id: str
    service: str
    peers: Mapping[str, str]
    listen: str
    clients: str
    data_dir: str
    joining: bool = False
    max_clock_drift: float | None = None
    seeded_bug: str | None = None
