"""The choices of a seed for groups that run the broker."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jepsen_like.simulation.chance import Chance
from jepsen_like.simulation.swarm import NEVER, Swarm, swarm_of

# Time with faults. A request costs more here than an append does there.
DEFAULT_FAULT_SECONDS = 15.0
# The largest entry of this tier: a batch is one entry a message.
LARGEST_BODY_BYTES = 420


@dataclass(frozen=True, slots=True)
class BrokerStyle:
    """What distinguishes a run of brokers, besides its group.

    Attributes:
        request_every_s: mean time between two requests.
        wrong_member: share of the requests that go to any member.
        drops_log: whether the log's beginning is ever given up.
        lose_queues_every_s: mean time between two losses of files of consume queues.
    """

    request_every_s: float
    wrong_member: float
    drops_log: bool
    lose_queues_every_s: float


def broker_swarm(seed: int, nodes: int | None, fault_seconds: float | None) -> Swarm:
    """The group of a seed: as in the tier of bare members, with room for messages, and snapshots
    in every seed.
    """
    swarm = swarm_of(seed, nodes, DEFAULT_FAULT_SECONDS if fault_seconds is None else fault_seconds)
    chance = Chance(seed, "broker group")
    snapshots = replace(swarm.snapshots, every_entries=chance.choice((5, 20, 80)))
    load = replace(
        swarm.load,
        append_every_s=chance.choice((0.5, 2.0)),
        entries_at_once=1,
        largest_body_bytes=LARGEST_BODY_BYTES,
        read_every_s=0.5,
    )
    # Groups that elect all the time store little: here the faults come less often.
    faults = replace(
        swarm.faults,
        crash_every_s=chance.choice((0.8, 2.0, 4.0)),
        crash_all=chance.choice((0.0, 0.3)),
        partition_every_s=chance.choice((NEVER, 3.0, 6.0)),
        pause_every_s=chance.choice((NEVER, 3.0)),
    )
    return replace(
        swarm,
        faults=faults,
        load=load,
        snapshots=replace(snapshots, piece_bytes=chance.choice((200, 4_096))),
        batch_bytes=chance.choice((1_000, 65_536)),
        segment_bytes=chance.choice((1_024, 4_096, 16_384)),
    )


def broker_style(seed: int) -> BrokerStyle:
    """The load of a seed."""
    chance = Chance(seed, "broker style")
    return BrokerStyle(
        request_every_s=chance.choice((0.01, 0.03, 0.1)),
        wrong_member=chance.choice((0.02, 0.2)),
        drops_log=chance.happens(0.6),
        lose_queues_every_s=chance.choice((NEVER, 0.2, 1.0)),
    )
