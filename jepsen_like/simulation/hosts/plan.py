"""The choices of one seed: hosts, groups, load and faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jepsen_like.chance import Chance

# Mean seconds between two faults of one kind, if the run has that kind.
FAULT_EVERY_S = (1.0, 6.0)
# Every kind of fault; each seed leaves some out, as a run in which everything breaks at once
# rarely finishes an operation.
FAULT_KINDS = (
    "broken machines",
    "closed groups",
    "closed hosts",
    "hanging disks",
    "kills",
    "one-way cuts",
    "partitions",
    "power cuts",
    "refused connections",
    "resets",
    "slow lines",
)


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The delay of bytes: a minimum, and a rest that is drawn with a mean."""

    least_s: float
    mean_s: float


@dataclass(frozen=True, slots=True)
class DiskStyle:
    """How long work on a disk takes, in seconds on the average."""

    sync_s: float
    work_s: float  # reading or writing a whole file beside the loop


class GroupPlan(NamedTuple):
    """One group: where its members begin, and its settings."""

    name: str
    hosts: tuple[int, ...]
    max_clock_drift: float | None
    snapshot_every: int
    segment_bytes: int
    is_idle: bool  # no client uses it: its members send only heartbeats


class HostsPlan(NamedTuple):
    seed: int
    hosts: int
    groups: tuple[GroupPlan, ...]
    fault_s: float
    line: LineStyle
    disk: DiskStyle
    fault_every_s: dict[str, float]
    clients: int
    pause_s: float  # between two calls of a client, on the average
    changes: bool  # whether members are replaced


def plan_of(seed: int, hosts: int | None = None, fault_s: float | None = None) -> HostsPlan:
    """Return the plan of a seed; arguments that are not None replace its choices."""
    chance = Chance(seed, "plan")
    drawn_hosts = chance.choice((3, 3, 3, 4, 5))
    hosts = hosts or drawn_hosts
    groups = tuple(
        _group(chance, number, hosts) for number in range(chance.choice((1, 2, 2, 3, 4)))
    )
    kinds = [kind for kind in FAULT_KINDS if chance.happens(0.5)]
    drawn_s = chance.uniform(6.0, 14.0)
    slow = chance.happens(0.5)
    return HostsPlan(
        seed,
        hosts,
        groups,
        fault_s or drawn_s,
        LineStyle(0.000_05, chance.choice((0.000_1, 0.000_5, 0.003, 0.02))),
        DiskStyle(chance.choice((0.004, 0.015)) if slow else 0.000_3, 0.003),
        {kind: chance.uniform(*FAULT_EVERY_S) for kind in kinds},
        chance.randint(1, 4),
        chance.choice((0.02, 0.1, 0.3)),
        chance.happens(0.6),
    )


def _group(chance: Chance, number: int, hosts: int) -> GroupPlan:
    size = min(hosts, chance.choice((3, 3, 3, 5)))
    members = tuple(sorted(chance.sample(range(hosts), size)))
    snapshots = chance.happens(0.6)
    return GroupPlan(
        f"g{number}",
        members,
        chance.choice((None, None, 0.01)),
        chance.choice((30, 80)) if snapshots else 0,
        chance.choice((4_096, 16_384, 65_536)),
        number > 0 and chance.happens(0.3),
    )
