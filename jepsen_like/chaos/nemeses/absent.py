"""Faults that cannot be made on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.executor import Done, Executor, Skipped
from jepsen_like.simulation.chance import Chance


def absent(reason: str) -> Executor:
    """What stands in the place of a fault that cannot be made."""

    @asynccontextmanager
    async def skipped(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        raise Skipped(reason)
        yield Done(())

    return skipped
