"""The choices of a seed: the group, its load, and how often each fault happens.

Swarm testing (Groce and others, 2012): a run in which some kinds of faults are absent and others
are strong reaches more states than a run in which every fault is mild.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.virtual_disk import CrashStyle

# Time with faults. Long enough for a few dozen elections in a rough seed.
DEFAULT_FAULT_S = 20.0


@dataclass(frozen=True, slots=True)
class NetworkStyle:
    """What the network does to a message. Times in seconds, the others are probabilities."""

    connections: bool  # one for each direction: its sender is told when one breaks
    ordered: bool  # always true of connections; else each message has a delay of its own
    least_delay_s: float
    mean_delay_s: float  # on top of the least one
    loss: float
    duplication: float
    one_way_cuts: float  # share of the partitions that cut one direction only
    cuts_hold: bool  # messages on a cut link wait until it is healed, as behind a TCP connection
    leader_cuts: float  # share of the partitions that have the leader alone on one side


@dataclass(frozen=True, slots=True)
class FaultStyle:
    """Mean seconds between faults of a kind (NEVER: not in this run), and how long they last."""

    partition_every_s: float
    partition_mean_s: float
    crash_every_s: float
    crash_all: float  # share of the crashes that hit all members at once
    power_cut: float  # share of the crashes that take the machine, not only the process
    crash_inside_disk_call: float
    down_mean_s: float
    pause_every_s: float
    pause_mean_s: float
    cut_with_pause: float  # share of the pauses during which the node is cut off as well
    sync_error_every_s: float
    crash: CrashStyle
    name_error_every_s: float = NEVER  # syncs of folders and renames that fail
    # share of the ends of processes that are no crash: the node is closed in order
    closed: float = 0.0
    kill_inside_disk_call: float = 0.0  # share of the kills that happen inside a disk call
    stall_every_s: float = NEVER  # one, several or all members stop, and go on together
    stall_mean_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadStyle:
    """The requests of clients. Times in seconds."""

    append_every_s: float
    entries_at_once: int
    largest_body_bytes: int
    read_every_s: float
    wrong_node: float  # share of the requests that go to any node, not to the leader


@dataclass(frozen=True, slots=True)
class LeadershipStyle:
    """Transfers of leadership, lease reads, and the drift of clocks."""

    transfer_every_s: float
    forget_every_s: float
    preferred_leader: str | None
    max_clock_drift: float | None  # as declared; None: no lease reads
    clock_spread: float  # how far the clocks' rates are from true time, at most
    member_reads: float  # share of the reads that go to any member


@dataclass(frozen=True, slots=True)
class SignStyle:
    """Signs of the ends of other members' processes, and how often they are wrong."""

    ends_seen: bool
    wrong_every_s: float


@dataclass(frozen=True, slots=True)
class SnapshotStyle:
    """When members write snapshots (0: never), how many they keep, and the size of sent pieces."""

    every_entries: int
    kept: int
    trailing_entries: int
    piece_bytes: int


@dataclass(frozen=True, slots=True)
class RoomStyle:
    """The room on members' disks: how large their reserve is, and how often others fill them."""

    fill_every_s: float
    reserve_bytes: int  # 0: no reserve


@dataclass(frozen=True, slots=True)
class ChurnStyle:
    """How the group changes."""

    change_every_s: float
    spares: int  # nodes that are in no group at first, each with an empty disk and a new name


@dataclass(frozen=True, slots=True)
class Swarm:
    """Everything that distinguishes one run from another."""

    seed: int
    nodes: int
    fault_s: float
    election_timeout_s: float
    heartbeat_interval_s: float
    network: NetworkStyle
    faults: FaultStyle
    load: LoadStyle
    leadership: LeadershipStyle
    churn: ChurnStyle
    snapshots: SnapshotStyle
    turn_mean_s: float  # from the arrival of a message to the turn that handles it
    sync_mean_s: float
    slow_sync: float  # share of the syncs that take longer than an election
    batch_bytes: int
    segment_bytes: int
    index_segment_bytes: int
    apply_at_once: int  # entries applied in one step
    quick_syncs: bool  # whether members wait for their disks on the loop
    flush_interval_s: float | None  # how long syncs may wait; None: not at all
    scrub_period_s: float  # of a check of the whole log; 0: there is none
    spare_segments: int
    wipe_every_s: float  # mean time between members that lose their disk
    mislay_every_s: float  # mean time between losses of most disks, which are put back later
    signs: SignStyle
    only_stalls: bool = False  # nothing else goes wrong, so no leader may be replaced
    restore_every_s: float = NEVER  # mean time between folders that are restored from copies
    room: RoomStyle = RoomStyle(NEVER, 0)


def swarm_of(seed: int, nodes: int | None = None, fault_s: float | None = None) -> Swarm:
    """Return the swarm of a seed; `nodes` and `fault_s` replace the choices of the seed."""
    chance = Chance(seed, "swarm")
    size = chance.choices((1, 2, 3, 5), (2, 4, 70, 24))[0]
    election_timeout_s = chance.choice((0.15, 0.3, 0.5, 1.0))
    body_bytes = chance.choice((16, 64, 300))
    swarm = Swarm(
        seed=seed,
        nodes=size,
        fault_s=DEFAULT_FAULT_S,
        election_timeout_s=election_timeout_s,
        heartbeat_interval_s=election_timeout_s * chance.choice((0.1, 0.2, 0.4)),
        network=_network(chance),
        faults=_faults(chance, election_timeout_s),
        load=LoadStyle(
            append_every_s=chance.choice((0.03, 0.1, 0.2, 0.5)),
            entries_at_once=chance.choice((1, 1, 3, 8)),
            largest_body_bytes=body_bytes,
            read_every_s=chance.choice((0.03, 0.1, 0.5)),
            wrong_node=chance.choice((0.05, 0.3)),
        ),
        leadership=_leadership(Chance(seed, "leadership")),
        churn=_churn(Chance(seed, "churn")),
        snapshots=_snapshots(Chance(seed, "snapshots")),
        turn_mean_s=chance.choice((0.000_05, 0.000_5, 0.005)),
        sync_mean_s=chance.choice((0.000_3, 0.003, 0.03)),
        slow_sync=chance.choice((0.0, 0.0, 0.02, 0.3)),
        batch_bytes=chance.choice((1, 200, 1_000, 65_536)),
        segment_bytes=chance.choice((512, 1_024, 4_096, 16_384)),
        index_segment_bytes=chance.choice((256, 1_024, 8_192)),
        apply_at_once=chance.choice((1, 20, 1_000)),
        quick_syncs=Chance(seed, "quick syncs").happens(0.3),
        flush_interval_s=Chance(seed, "late flush").choice((None,) * 6 + (0.02, 0.5)),
        scrub_period_s=Chance(seed, "scrub").choice((0.0, 2.0, 30.0)),
        spare_segments=Chance(seed, "spares").choice((0, 0, 2)),
        wipe_every_s=Chance(seed, "wipe rate").choice((NEVER, NEVER, 1.0, 4.0)),
        mislay_every_s=Chance(seed, "mislay rate").choice((NEVER,) * 5 + (4.0,)),
        signs=_signs(Chance(seed, "signs")),
    )
    # A group that grows from one member is rare otherwise, and its first member loses its disk.
    if Chance(seed, "grown group").happens(0.06):
        swarm = replace(swarm, nodes=1, churn=ChurnStyle(1.0, 3), wipe_every_s=0.5)
    swarm = replace(swarm, faults=_more_faults(swarm, Chance(seed, "more faults")))
    stalls = _stalls(seed, swarm.election_timeout_s)
    faults = replace(swarm.faults, stall_every_s=stalls.every_s, stall_mean_s=stalls.mean_s)
    swarm = replace(swarm, faults=faults)
    if _keeps_memories(swarm):
        every_s = Chance(seed, "restore rate").choice((NEVER, 1.0, 3.0))
        swarm = replace(swarm, restore_every_s=every_s)
    if nodes is not None:
        swarm = replace(swarm, nodes=nodes)
    if fault_s is not None:
        swarm = replace(swarm, fault_s=fault_s)
    return swarm


def _keeps_memories(swarm: Swarm) -> bool:
    """Return whether members remember the others' promises: no process ends, no disk is lost."""
    faults = swarm.faults
    ends = (faults.crash_every_s, faults.sync_error_every_s, faults.name_error_every_s)
    changes = (swarm.wipe_every_s, swarm.churn.change_every_s)
    kept = swarm.nodes > 2 and swarm.network.connections and swarm.flush_interval_s is None
    return kept and all(every_s == NEVER for every_s in (*ends, *changes))


def folder_swarm(seed: int, nodes: int | None = None, fault_s: float | None = None) -> Swarm:
    """Return a swarm in which folders are restored often, while links break."""
    swarm = swarm_of(seed, nodes if nodes and nodes > 2 else 3, fault_s)
    faults = replace(
        swarm.faults,
        crash_every_s=NEVER,
        sync_error_every_s=NEVER,
        name_error_every_s=NEVER,
        partition_every_s=min(swarm.faults.partition_every_s, 0.7),
    )
    return replace(
        swarm,
        network=replace(swarm.network, connections=True, ordered=True),
        faults=faults,
        churn=replace(swarm.churn, change_every_s=NEVER, spares=0),
        wipe_every_s=NEVER,
        flush_interval_s=None,
        restore_every_s=1.0,
    )


def aimed_swarm(
    seed: int, nodes: int | None, fault_s: float | None, aim: Mapping[str, Any]
) -> Swarm:
    """Return the swarm of a seed with the fields of an aim; a mapping has fields of a style."""
    swarm = replace(swarm_of(seed, nodes, fault_s), restore_every_s=NEVER)
    fields = {
        name: replace(getattr(swarm, name), **value) if isinstance(value, Mapping) else value
        for name, value in aim.items()
    }
    return replace(swarm, **fields)


def _more_faults(swarm: Swarm, chance: Chance) -> FaultStyle:
    faults = replace(
        swarm.faults,
        name_error_every_s=chance.choice((NEVER, NEVER, 2.0)),
        closed=chance.choice((0.0, 0.3)),
        kill_inside_disk_call=chance.choice((0.0, 0.5)),
    )
    if swarm.flush_interval_s is None:
        return faults
    # Entries that count before a sync survive a killed process, but no power cut and no bad disk.
    return replace(faults, power_cut=0.0, sync_error_every_s=NEVER, name_error_every_s=NEVER)


class _Stalls(NamedTuple):
    every_s: float
    mean_s: float
    alone_every_s: float  # if there are no other faults; NEVER: there are


def _stalls(seed: int, election_timeout_s: float) -> _Stalls:
    chance = Chance(seed, "stalls")
    mean_s = election_timeout_s * chance.choice((0.5, 2.0, 10.0))
    every_s = chance.choice((NEVER, NEVER, 1.0, 5.0))
    alone = chance.happens(0.08)
    return _Stalls(every_s, mean_s, chance.choice((0.5, 1.0)) if alone else NEVER)


def members_swarm_of(seed: int, nodes: int | None = None, fault_s: float | None = None) -> Swarm:
    """Return the swarm of a seed for bare members. In some seeds they only stall, and no leader may
    be replaced.
    """
    swarm = swarm_of(seed, nodes, fault_s)
    stalls = _stalls(seed, swarm.election_timeout_s)
    if stalls.alone_every_s == NEVER:
        return replace(swarm, room=_room(Chance(seed, "room"), swarm.segment_bytes))
    return replace(
        swarm,
        nodes=nodes or max(3, swarm.nodes),
        network=NetworkStyle(True, True, 0.000_05, 0.001, 0.0, 0.0, 0.0, False, 0.0),
        faults=replace(
            swarm.faults,
            partition_every_s=NEVER,
            crash_every_s=NEVER,
            pause_every_s=NEVER,
            sync_error_every_s=NEVER,
            name_error_every_s=NEVER,
            stall_every_s=stalls.alone_every_s,
        ),
        leadership=replace(
            swarm.leadership,
            transfer_every_s=NEVER,
            forget_every_s=NEVER,
            preferred_leader=None,
            clock_spread=0.0,  # with a fast clock, a stall takes longer than it may
        ),
        churn=ChurnStyle(NEVER, 0),
        turn_mean_s=min(swarm.turn_mean_s, 0.000_5),
        sync_mean_s=min(swarm.sync_mean_s, 0.003),
        slow_sync=0.0,
        wipe_every_s=NEVER,
        mislay_every_s=NEVER,
        restore_every_s=NEVER,
        signs=SignStyle(ends_seen=False, wrong_every_s=NEVER),
        only_stalls=True,
    )


def _room(chance: Chance, segment_bytes: int) -> RoomStyle:
    # The other seeds keep the faults that they had before full disks.
    if not chance.happens(0.15):
        return RoomStyle(NEVER, 0)
    every_s = chance.choice((1.0, 4.0))
    # A reserve has room for some segments, a snapshot, and the records of many terms.
    return RoomStyle(every_s, chance.choice((32_768, 32_768, 131_072)) + 4 * segment_bytes)


def _leadership(chance: Chance) -> LeadershipStyle:
    # The widest bound most often: there a lease and a promise end closest to each other.
    drift = chance.choice((None, 0.05, 0.3, 0.3))
    return LeadershipStyle(
        transfer_every_s=chance.choice((NEVER, NEVER, 0.5, 3.0)),
        forget_every_s=chance.choice((NEVER, NEVER, 1.0)),
        preferred_leader=chance.choice((None, None, None, "n0")),
        max_clock_drift=drift,
        clock_spread=drift if drift is not None else 0.2,
        member_reads=chance.choice((0.0, 0.3, 0.9)),
    )


def _signs(chance: Chance) -> SignStyle:
    # Half of the runs have no signs: there only the election timeout works.
    if chance.happens(0.5):
        return SignStyle(ends_seen=False, wrong_every_s=NEVER)
    return SignStyle(ends_seen=True, wrong_every_s=chance.choice((NEVER, 0.3, 2.0)))


def _snapshots(chance: Chance) -> SnapshotStyle:
    return SnapshotStyle(
        every_entries=chance.choice((0, 3, 10, 40)),
        kept=chance.choice((1, 1, 2)),
        trailing_entries=chance.choice((0, 0, 10)),
        piece_bytes=chance.choice((20, 60, 4_096)),
    )


def _churn(chance: Chance) -> ChurnStyle:
    every_s = chance.choice((NEVER, NEVER, 0.3, 1.0, 3.0))
    return ChurnStyle(every_s, 0 if every_s == NEVER else chance.choice((0, 1, 2, 3)))


def _network(chance: Chance) -> NetworkStyle:
    connections = chance.happens(0.5)
    return NetworkStyle(
        connections=connections,
        ordered=connections or chance.happens(0.3),
        least_delay_s=chance.choice((0.000_05, 0.001, 0.01)),
        mean_delay_s=chance.choice((0.000_1, 0.002, 0.03)),
        loss=chance.choice((0.0, 0.0, 0.02, 0.15)),
        duplication=chance.choice((0.0, 0.0, 0.02, 0.2)),
        one_way_cuts=chance.choice((0.0, 0.3, 1.0)),
        cuts_hold=chance.happens(0.5),
        leader_cuts=chance.choice((0.0, 0.5, 0.9)),
    )


def _faults(chance: Chance, election_timeout_s: float) -> FaultStyle:
    return FaultStyle(
        partition_every_s=chance.choice((NEVER, 0.7, 2.0, 6.0)),
        partition_mean_s=election_timeout_s * chance.choice((0.5, 2.0, 5.0)),
        crash_every_s=chance.choice((NEVER, 0.7, 2.0, 6.0)),
        crash_all=chance.choice((0.0, 0.1, 0.5)),
        power_cut=chance.choice((0.0, 0.5, 1.0)),
        crash_inside_disk_call=chance.choice((0.0, 0.5, 0.9)),
        down_mean_s=election_timeout_s * chance.choice((0.2, 2.0, 5.0)),
        pause_every_s=chance.choice((NEVER, NEVER, 1.0, 5.0)),
        pause_mean_s=election_timeout_s * chance.choice((0.5, 2.0)),
        cut_with_pause=chance.choice((0.0, 0.7)),
        sync_error_every_s=chance.choice((NEVER, NEVER, 4.0)),
        crash=CrashStyle(
            keep=chance.choice((0.0, 0.5, 0.9)),
            torn=chance.choice((0.0, 0.5, 0.9)),
            names_in_order=chance.happens(0.5),
        ),
    )
