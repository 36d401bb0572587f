"""Faults from inside of members: syncs that take long or fail, wall clocks that are stepped."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from jepsen_like.chance import Chance
from jepsen_like.chaos.inside.steering import EVERY_SYNC, Steering
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.members.member import Member
from jepsen_like.chaos.nemeses.catalogue import CLOCK_STEP_MS
from jepsen_like.chaos.nemeses.executor import Done, Executors, Skipped, target_of

# A busy disk, and one that has stopped: no sync ends before the fault does.
SLOW_MS = (20, 400)
STALLED_MS = 60_000
# How long a member whose sync failed takes to end; it may send answers, and close its files.
ENDS_WITHIN_S = 10.0
# How long a clock that is stepped to and fro stays, in seconds.
STROBES_S = (0.05, 0.5)
# The fates of calls that a fault meets, by the count of the steering.
_FATES = {"syncs_delayed": "delayed", "syncs_failed": "failed", "times_stepped": "stepped"}


class _Hits(NamedTuple):
    """The members that a fault hits, with their steerings.

    Attributes:
        counted: the name of the steering's count of the calls that the fault meets.
        before: that count, before the fault.
    """

    pairs: Sequence[tuple[Member, Steering]]
    counted: str
    before: int

    def done(self, details: Mapping[str, Any]) -> Done:
        names = tuple(member.name for member, _ in self.pairs)
        return Done(names, details, lambda: {_FATES[self.counted]: self.total() - self.before})

    def total(self) -> int:
        """Return the present count, of all members."""
        return sum(getattr(steering, self.counted) for _, steering in self.pairs)


class _Told(NamedTuple):
    """A member that may get errors of syncs.

    Attributes:
        incarnation: the number of the process that gets them.
        failed_before: how many syncs had failed before.
    """

    member: Member
    steering: Steering
    incarnation: int
    failed_before: int

    def goes_on(self) -> bool:
        return self.member.runs and self.member.incarnations == self.incarnation

    def broken_promises(self) -> list[Path]:
        """Return the files whose syncs failed meanwhile, and whose content the member acknowledges.

        Files beside the folder of a node, such as consume queues, can be made from its log again.
        """
        folder = self.member.folder
        failed = self.steering.failed_since(self.failed_before)
        return [path for path in failed if not folder.exists() or path.is_relative_to(folder)]


class InsideFaults:
    """Steers the calls of members; one that goes on after a sync failed is a finding."""

    def __init__(self, steerings: Mapping[str, Steering], finding: Callable[[str], None]) -> None:
        self._steerings = steerings
        self._finding = finding

    @property
    def executors(self) -> Executors:
        return {
            "fsync-slow": self.slow_syncs,
            "fsync-fails": self.failed_syncs,
            "clock": self.stepped_clocks,
            "clock-strobe-leader": self.strobed_clock,
        }

    @asynccontextmanager
    async def slow_syncs(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Let syncs take long, or not end at all."""
        delay_ms = STALLED_MS if "stall" in kind else chance.randint(*SLOW_MS)
        with self._steered(group, chance, kind, "syncs_delayed") as hits:
            for _, steering in hits.pairs:
                steering.delay_syncs(delay_ms)
            yield hits.done({"delay_ms": delay_ms})

    @asynccontextmanager
    async def failed_syncs(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Let one sync or all fail, maybe at a start of the member, and check that it ends then.

        Linux reports a failed write once; a program that then syncs again is told that all is well,
        and it is not.
        """
        syncs = chance.choice((1, EVERY_SYNC))
        with self._steered(group, chance, kind, "syncs_failed") as hits:
            if kind.endswith("-start"):
                for member, _ in hits.pairs:
                    member.kill()
                    await member.ended()
            told = [_told(member, steering) for member, steering in hits.pairs]
            for member, steering in hits.pairs:
                member.broken_anew = True
                steering.fail_syncs(syncs)
            yield hits.done({"syncs": "all" if syncs == EVERY_SYNC else syncs})
        with trio.move_on_after(ENDS_WITHIN_S):
            for one in told:
                if one.goes_on() and one.broken_promises():
                    await one.member.ended()
        self._find_those_that_went_on(told)

    def _find_those_that_went_on(self, told: Sequence[_Told]) -> None:
        for one in told:
            failed = one.broken_promises()
            if failed and one.goes_on():
                self._finding(
                    f"{one.member.name} went on for {ENDS_WITHIN_S:g} s after a sync of "
                    f"{failed[0].name} failed"
                )

    @asynccontextmanager
    async def stepped_clocks(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        """Step the wall clocks of members, each by its own time, and back in the end."""
        with self._steered(group, chance, kind, "times_stepped") as hits:
            steps_ms = {member.name: step_of(chance) for member, _ in hits.pairs}
            for member, steering in hits.pairs:
                steering.step_clock(steps_ms[member.name])
            yield hits.done({"steps_ms": steps_ms})

    @asynccontextmanager
    async def strobed_clock(self, group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        with self._steered(group, chance, kind, "times_stepped") as hits:
            step_ms = step_of(chance)
            async with trio.open_nursery() as nursery:
                for _, steering in hits.pairs:
                    nursery.start_soon(_strobe, steering, step_ms, chance)
                yield hits.done({"step_ms": step_ms})
                nursery.cancel_scope.cancel()

    @contextmanager
    def _steered(self, group: Group, chance: Chance, kind: str, count: str) -> Iterator[_Hits]:
        """Yield the members that a kind of fault hits; heal them after the block. Raises
        Skipped.
        """
        members = group.present if kind.endswith("-all") else [target_of(group, chance, kind)]
        pairs = [
            (member, steering)
            for member in members
            if (steering := self._steerings.get(member.name)) is not None and steering.is_loaded
        ]
        if not pairs:
            names = ", ".join(member.name for member in members)
            raise Skipped(f"{names}: the process does not load libraries by LD_PRELOAD")
        hits = _Hits(pairs, count, 0)
        try:
            yield hits._replace(before=hits.total())
        finally:
            for _, steering in pairs:
                steering.heal()


def _told(member: Member, steering: Steering) -> _Told:
    begins = 0 if member.runs else 1
    return _Told(member, steering, member.incarnations + begins, steering.syncs_failed)


async def _strobe(steering: Steering, step_ms: int, chance: Chance) -> None:
    while True:
        for ahead_ms in (step_ms, 0):
            steering.step_clock(ahead_ms)
            await trio.sleep(chance.uniform(*STROBES_S))


def step_of(chance: Chance) -> int:
    """Return how far a clock is stepped, in milliseconds: small and large, forward and back."""
    least_ms, most_ms = CLOCK_STEP_MS
    size_ms = round(least_ms * math.pow(most_ms / least_ms, chance.uniform(0.0, 1.0)))
    return size_ms if chance.happens(0.5) else -size_ms
