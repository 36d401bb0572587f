"""Carries out one kind of fault on the group of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import trio

from dledger.declared_error import DeclaredError
from jepsen_like.chance import Chance
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member


class Skipped(DeclaredError):
    """A fault is left out: there is nothing to break, or it would break more than it may."""

    problem: str


class Done(NamedTuple):
    """What a fault did.

    Attributes:
        targets: the members that it hit.
        details: its numbers.
        effect: called when the fault is healed; returns packets or calls by their fate,
            such as `{"lost": 17}`; nothing for faults whose effect is not counted. A count
            of 0 says that it broke nothing.
    """

    targets: tuple[str, ...]
    details: Mapping[str, Any] = {}
    effect: Callable[[], Mapping[str, int]] = dict


# Entering breaks, leaving heals. Raises Skipped before it breaks anything.
Executor = Callable[[Group, Chance, str], AbstractAsyncContextManager[Done]]
# By the name of a kind of fault, or by that of the nemesis for all its other kinds.
Executors = Mapping[str, Executor]


def executor_of(executors: Executors, nemesis: str, kind: str) -> Executor:
    return executors.get(kind) or executors[nemesis]


def absent(reason: str) -> Executor:
    """Return an executor for a fault that cannot be made on this machine."""

    @asynccontextmanager
    async def skipped(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        raise Skipped(reason)
        yield Done(())

    return skipped


@contextmanager
def at_most(limit_s: float, what: str) -> Iterator[None]:
    """Limit the time of a block. Raises HarnessFailed if it is exceeded."""
    with trio.move_on_after(limit_s) as scope:
        yield
    if scope.cancelled_caught:
        raise HarnessFailed(f"{what} did not end within {limit_s:g} s")


def check_whole(group: Group, why: str = "") -> None:
    """Raise Skipped unless the group is whole; `why` it has to be ends the sentence."""
    if not group.healthy:
        raise Skipped(f"the group is not whole{why}")


def leader_of(group: Group) -> Member:
    """Return the leader. Raises Skipped if there is none."""
    leader = group.leader
    if leader is None:
        raise Skipped("no member leads")
    return leader


def any_of(group: Group, chance: Chance) -> Member:
    """Return any member that runs. Raises Skipped if there is none."""
    running = [member for member in group.present if member.runs]
    if not running:
        raise Skipped("no member runs")
    return chance.choice(running)


def target_of(group: Group, chance: Chance, kind: str) -> Member:
    """Return the leader if the name of the kind says so, else any member. Raises Skipped."""
    return leader_of(group) if "leader" in kind else any_of(group, chance)
