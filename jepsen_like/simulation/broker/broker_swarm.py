"""The choices of a seed for groups that run the broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.swarm import Swarm, swarm_of

# Time with faults. A request costs more here than an append does there.
DEFAULT_FAULT_S = 15.0
# The largest entry of this tier: longer batches take several.
LARGEST_BODY_BYTES = 420


@dataclass(frozen=True, slots=True)
class BrokerStyle:
    """What distinguishes a run of brokers, besides its group.

    Attributes:
        request_every_s: mean time between two requests.
        wrong_member: share of the requests that go to any member.
        lose_queues_every_s: mean time between two losses of files of consume queues.
        topics: how many topics clients use.
        updated_s: until then a member runs an earlier program, and the log keeps to its format.
        weights: by kind of action, its share of the requests.
    """

    request_every_s: float
    wrong_member: float
    lose_queues_every_s: float
    topics: int
    updated_s: float
    weights: Mapping[str, int]


class Aim(NamedTuple):
    """Replaces choices of a seed, so that one kind of mistake shows.

    Attributes:
        group, faults, snapshots, leadership: fields of Swarm and of its styles.
        style: fields of BrokerStyle.
        weights: of kinds; the other kinds stay as the seed decides.
    """

    group: Mapping[str, Any] = {}
    faults: Mapping[str, Any] = {}
    snapshots: Mapping[str, Any] = {}
    leadership: Mapping[str, Any] = {}
    style: Mapping[str, Any] = {}
    weights: Mapping[str, int] = {}


NO_AIM = Aim()


def broker_swarm(seed: int, nodes: int | None, fault_s: float | None, aim: Aim = NO_AIM) -> Swarm:
    """Return the group of a seed: as in the tier of bare members, with room for messages, and
    snapshots in every seed.
    """
    swarm = swarm_of(seed, nodes, DEFAULT_FAULT_S if fault_s is None else fault_s)
    chance = Chance(seed, "broker group")
    snapshots = replace(swarm.snapshots, every_entries=chance.choice((5, 20, 80)))
    load = replace(
        swarm.load,
        append_every_s=chance.choice((0.5, 2.0)),
        entries_at_once=1,
        largest_body_bytes=LARGEST_BODY_BYTES,
        read_every_s=0.5,
    )
    # Groups that elect all the time store little, so the faults come less often here.
    faults = replace(
        swarm.faults,
        crash_every_s=chance.choice((0.8, 2.0, 4.0)),
        crash_all=chance.choice((0.0, 0.3)),
        partition_every_s=chance.choice((NEVER, 3.0, 6.0)),
        pause_every_s=chance.choice((NEVER, 3.0)),
    )
    snapshots = replace(snapshots, piece_bytes=chance.choice((200, 4_096)))
    swarm = replace(
        swarm,
        faults=replace(faults, **aim.faults),
        load=load,
        snapshots=replace(snapshots, **aim.snapshots),
        leadership=replace(swarm.leadership, **aim.leadership),
        batch_bytes=chance.choice((1_000, 65_536)),
        segment_bytes=chance.choice((1_024, 4_096, 16_384)),
    )
    return replace(swarm, **aim.group)


def broker_style(seed: int, aim: Aim = NO_AIM) -> BrokerStyle:
    chance = Chance(seed, "broker style")
    style = BrokerStyle(
        request_every_s=chance.choice((0.01, 0.03, 0.1)),
        wrong_member=chance.choice((0.02, 0.2)),
        lose_queues_every_s=chance.choice((NEVER, 0.2, 1.0)),
        topics=6,
        updated_s=Chance(seed, "updates").choice((0.0, 0.0, 2.0, 6.0, NEVER)),
        weights={
            **_weights(chance, Chance(seed, "ordered style")),
            **_of_operators(Chance(seed, "operator style")),
            **_of_remade(Chance(seed, "remade style")),
            **_of_resumed(Chance(seed, "resumed style")),
            **aim.weights,
        },
    )
    return replace(style, **aim.style)


def _weights(chance: Chance, ordered: Chance) -> dict[str, int]:
    delayed, transactions = chance.choice((0, 8, 20)), chance.choice((0, 8, 20))
    pops = chance.choice((0, 10, 30))
    # From another stream, so that the rest of a seed stays as it was.
    in_order = ordered.choice((0, 15, 40))
    return {
        "send": 40,
        "send batch": 10,
        "send delayed": delayed,
        "recall": delayed // 4,
        "send half": transactions,
        "end transaction": transactions,
        "be producer": transactions // 4,
        "put topic": 6,
        "delete topic": chance.choice((2, 6)),
        "put group": 3,
        "delete group": 2,
        "commit offset": 12,
        "lock": 6,
        "ask": 4,
        "send in order": in_order,
        "consume in order": 2 * in_order,
        "pull filtered": in_order // 3,
        "pop": pops,
        "acknowledge pop": pops,
        "hide pop": pops // 5,
        "reset offsets": chance.choice((0, 3)),
        "send back": chance.choice((0, 5, 15)),
        "append raw": chance.choice((0, 6)),
        "drop log": 4 if chance.happens(0.6) else 0,
    }


def _of_operators(chance: Chance) -> dict[str, int]:
    return {
        "change settings": chance.choice((0, 0, 2)),
        "redrive": chance.choice((0, 4, 10)),
        "resume": chance.choice((0, 4)),
        "change rule": (rules := chance.choice((0, 4, 10))),
        "send as user": 2 * rules,
    }


def _of_remade(chance: Chance) -> dict[str, int]:
    often = chance.choice((0, 20, 60))
    return {
        "send to remade": often,
        "consume remade": 3 * often,
        "pop remade": often,
        "acknowledge remade": often,
        "remake": often and chance.choice((1, 4)),
        "reset remade": often and chance.choice((0, 2, 6)),
    }


def _of_resumed(chance: Chance) -> dict[str, int]:
    """In a few seeds producers end no transactions: many are given up, and resumed by operators."""
    if not chance.happens(0.1):
        return {}
    return {
        **{"send half": 40, "end transaction": 0, "be producer": 20},
        **{"delete topic": 0, "change settings": 10, "resume": 40},
    }
