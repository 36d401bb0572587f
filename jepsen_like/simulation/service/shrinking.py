"""Shortens a failing schedule to what the failure needs.

Steps are taken out by halves, quarters and so on (delta debugging, Zeller and Hildebrandt 2002);
then members, time and digits. A shorter schedule counts if it breaks the same promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.service.schedule import LEADER, Schedule, Step

# Runs a schedule, and returns its failure if it has one.
Fails = Callable[[Schedule], Failure | None]
# Time that stays after the last step, in virtual seconds.
AFTER_LAST_STEP_S = 0.1
SIZES = (1, 2, 3, 4)
KEPT_OF_GAPS = (0.05, 0.1, 0.2, 0.4, 0.7)
# Less than this is not worth a run, in virtual seconds.
LEAST_GAIN_S = 0.005
DIGITS = (1, 2, 3)


class Shrunk:
    """The shortest schedule found so far, after so many `runs`.

    `cuts_bodies` is whether a part of a body is a valid body. It `gave_up` if the time was over
    before nothing shorter was found.
    """

    def __init__(
        self,
        schedule: Schedule,
        failure: Failure,
        fails: Fails,
        *,
        cuts_bodies: bool,
        is_over: Callable[[], bool],
    ) -> None:
        self.schedule = schedule
        self.failure = failure
        self.runs = 0
        self.gave_up = False
        self._fails = fails
        self._cuts_bodies = cuts_bodies
        self._is_over = is_over

    def shrink(self) -> None:
        """Try shorter schedules until none fails, or the time is over."""
        self._end_early()
        while not self.gave_up:
            before = self.schedule
            self._drop_steps()
            self._drop_members()
            self._shorten_time()
            if self.schedule == before:
                break
        if self._cuts_bodies:
            self._cut_bodies()
        self._round()

    def _try(self, schedule: Schedule) -> bool:
        """Run a schedule, and keep it if it breaks the same promise; return whether it does."""
        if schedule == self.schedule:
            return False
        if self._is_over():
            self.gave_up = True
            return False
        self.runs += 1
        failure = self._fails(schedule)
        if failure is None or failure.promise != self.failure.promise:
            return False
        self.schedule, self.failure = schedule, failure
        return True

    def _end_early(self) -> None:
        at_s, now = self.failure.at_s, self.schedule
        kept = tuple(step for step in now.steps if step.at_s <= at_s)
        if at_s < now.length_s:
            self._try(now._replace(steps=kept, length_s=at_s))

    def _drop_steps(self) -> None:
        parts = 2
        while len(self.schedule.steps) >= 1 and not self.gave_up:
            steps = self.schedule.steps
            size = max(1, len(steps) // parts)
            dropped = False
            at = 0
            while at < len(self.schedule.steps):
                steps = self.schedule.steps
                if self._try(self.schedule._replace(steps=(*steps[:at], *steps[at + size :]))):
                    dropped = True
                else:
                    at += size
            if size == 1 and not dropped:
                return
            parts = parts if dropped and size > 1 else min(parts * 2, max(2, len(steps)))

    def _drop_members(self) -> None:
        """Take members away; their steps go to others."""
        for nodes in SIZES:
            if nodes >= self.schedule.nodes:
                return
            steps = tuple(
                step._replace(member=_among(step.member, nodes)) for step in self.schedule.steps
            )
            if self._try(self.schedule._replace(nodes=nodes, steps=steps)):
                return

    def _shorten_time(self) -> None:
        for factor in (0.1, 0.5, 0.8):
            while self._try(self._scaled(factor)):
                pass
        for at in range(len(self.schedule.steps)):
            self._close_gap(at)
        last_s = max((step.ends_s for step in self.schedule.steps), default=0.0)
        if last_s + AFTER_LAST_STEP_S < self.schedule.length_s:
            self._try(self.schedule._replace(length_s=last_s + AFTER_LAST_STEP_S))

    def _close_gap(self, at: int) -> None:
        """Have a step and all later ones come sooner after the one before."""
        steps = self.schedule.steps
        before_s = steps[at - 1].at_s if at else 0.0
        gap_s = steps[at].at_s - before_s
        for kept_s in (share * gap_s for share in KEPT_OF_GAPS):
            sooner_s = gap_s - kept_s
            if sooner_s < LEAST_GAIN_S:
                return
            later = (step._replace(at_s=step.at_s - sooner_s) for step in steps[at:])
            shorter = self.schedule._replace(
                length_s=self.schedule.length_s - sooner_s, steps=(*steps[:at], *later)
            )
            if self._try(shorter):
                return

    def _scaled(self, factor: float) -> Schedule:
        steps = [
            step._replace(at_s=step.at_s * factor, for_s=step.for_s * factor)
            for step in self.schedule.steps
        ]
        return self.schedule._replace(length_s=self.schedule.length_s * factor, steps=tuple(steps))

    def _cut_bodies(self) -> None:
        """Keep one byte of each body, or two."""
        for at in range(len(self.schedule.steps)):
            for kept in (1, 2):
                steps = list(self.schedule.steps)
                steps[at] = steps[at]._replace(body=steps[at].body[:kept])
                if self._try(self.schedule._replace(steps=tuple(steps))):
                    break

    def _round(self) -> None:
        """Write times with few digits, if it still fails."""
        for digits in DIGITS:
            rounded = self.schedule._replace(
                length_s=round(self.schedule.length_s + 10**-digits, digits),
                steps=_rounded(self.schedule.steps, digits),
            )
            if self._try(rounded):
                return


def _among(members: str, nodes: int) -> str:
    """Return the members of a step in a smaller group."""
    names = (
        name if name == LEADER else f"n{int(name.removeprefix('n')) % nodes}"
        for name in members.split()
    )
    return " ".join(sorted(set(names)))


def _rounded(steps: Sequence[Step], digits: int) -> tuple[Step, ...]:
    return tuple(
        step._replace(at_s=round(step.at_s, digits), for_s=round(step.for_s, digits))
        for step in steps
    )
