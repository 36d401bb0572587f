"""The schedule of a seed: which faults, how often, and what clients do.

Swarm testing (Groce and others, 2012): a run in which some kinds of faults are absent and others
are strong reaches more states than a run in which every fault is mild.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dledger.state_machine import SnapshottingMachine
from jepsen_like.chance import Chance
from jepsen_like.chaos.service import Caller, Described
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.service.adaptive_clients import ADAPTIVE_CLIENTS
from jepsen_like.simulation.service.machine_error import called
from jepsen_like.simulation.service.schedule import LEADER, Do, Schedule, Step
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.swarm import (
    ChurnStyle,
    FaultStyle,
    LoadStyle,
    SignStyle,
    SnapshotStyle,
    Swarm,
    swarm_of,
)
from jepsen_like.simulation.witness import InvariantViolated

DEFAULT_S = 10.0
# The longest body of an append, unless the caller says otherwise.
LARGEST_BODY_BYTES = 1024
# A segment holds the longest body and a little more, so logs are cut behind snapshots.
AROUND_BODIES_BYTES = 256
# Share of the syncs that take longer than an election, at most.
MOST_SLOW_SYNCS = 0.02
# Snapshots are sent in pieces of this size at least: a user's state is larger than the library's.
LEAST_PIECE_BYTES = 512
# More steps show nothing new, and take time to shrink.
MOST_STEPS = 2_000
# A fault lasts at most this multiple of its mean.
LONGEST_FACTOR = 2.5
# Kinds of faults in one run, at most: a group under all of them answers no client.
MOST_KINDS = 3
# Share of the reads that go to any member.
READS_ANYWHERE = 0.7
# Clients that take turns, each with one call at a time, where the service tells them apart; and
# how many calls each makes before another one comes. One that gets no answer makes no more.
CLIENTS = 5
CALLS_A_CLIENT = 12
# Share of the faults that meet the leader, which has the most to lose.
LEADERS_SHARE = 0.6
# The mean seconds between faults of one kind.
_EVERY_S = (1.0, 2.5, 6.0)


def service_swarm(
    seed: int,
    nodes: int | None,
    fault_s: float,
    *,
    snapshots: bool,
    largest_body_bytes: int = LARGEST_BODY_BYTES,
) -> Swarm:
    """Return the swarm of a seed: network, disks, timeouts. Faults come from the schedule alone."""
    swarm = swarm_of(seed, nodes, fault_s)
    crash = swarm.faults.crash
    # As the library's own links are: a sender learns when its connection breaks.
    network = replace(swarm.network, connections=True, ordered=True)
    pieces = max(swarm.snapshots.piece_bytes, LEAST_PIECE_BYTES)
    quiet = SnapshotStyle(0, 1, 0, pieces)
    return replace(
        swarm,
        nodes=nodes if nodes is not None else Chance(seed, "size").choice((3, 3, 5)),
        network=network,
        faults=FaultStyle(NEVER, 1.0, NEVER, 0.0, 0.0, 0.0, 1.0, NEVER, 1.0, 0.0, NEVER, crash),
        load=LoadStyle(NEVER, 1, largest_body_bytes, NEVER, 0.0),
        leadership=replace(
            swarm.leadership, transfer_every_s=NEVER, forget_every_s=NEVER, preferred_leader=None
        ),
        churn=ChurnStyle(NEVER, 0),
        snapshots=replace(swarm.snapshots, piece_bytes=pieces) if snapshots else quiet,
        segment_bytes=max(swarm.segment_bytes, largest_body_bytes + AROUND_BODIES_BYTES),
        slow_sync=min(swarm.slow_sync, MOST_SLOW_SYNCS),
        flush_interval_s=None,
        scrub_period_s=0.0,
        spare_segments=0,
        wipe_every_s=NEVER,
        signs=SignStyle(swarm.signs.ends_seen, NEVER),
    )


def has_snapshots(service: Service) -> bool:
    """Return whether the machine of a service has snapshots."""
    return isinstance(service.new_machine(), SnapshottingMachine)


def drawn_schedule(
    service: Service, seed: int, nodes: int | None = None, fault_s: float | None = None
) -> Schedule:
    """Return the schedule of a seed; `nodes` and `fault_s` replace the choices of the seed.

    Raises Failure if the user's code that draws clients' calls raises.
    """
    length_s = DEFAULT_S if fault_s is None else fault_s
    swarm = service_swarm(seed, nodes, length_s, snapshots=False)
    names = [f"n{number}" for number in range(swarm.nodes)]
    try:
        operations = _operations(service, seed, names, length_s)
    except InvariantViolated as violation:
        raise Failure(seed, 0.0, violation.promise, violation.how) from violation
    steps = [*_faults(seed, names, length_s, swarm.election_timeout_s), *operations]
    steps.sort(key=lambda step: step.at_s)
    return Schedule(seed, swarm.nodes, length_s, tuple(steps[:MOST_STEPS]))


def faults_of(seed: int, nodes: int, fault_s: float) -> list[Step]:
    """Return the faults of a seed alone."""
    names = [f"n{number}" for number in range(nodes)]
    swarm = service_swarm(seed, nodes, fault_s, snapshots=False)
    steps = _faults(seed, names, fault_s, swarm.election_timeout_s)
    return sorted(steps, key=lambda step: step.at_s)


def _faults(seed: int, names: list[str], length_s: float, timeout_s: float) -> list[Step]:
    weights = Chance(seed, "weights of faults")
    kinds = [do for do in Do if do not in (Do.APPEND, Do.READ, Do.TURN)]
    if len(names) == 1:
        kinds = [do for do in kinds if do not in (Do.CUT_OFF, Do.MUTE)]
    steps: list[Step] = []
    for do in weights.sample(kinds, 1 + weights.randrange(MOST_KINDS)):
        every_s = weights.choice(_EVERY_S)
        lasts_s = timeout_s * weights.choice((0.5, 1.0, 3.0))
        chance = Chance(seed, f"fault {do}")
        for at_s in _times(chance, every_s, length_s):
            for_s = min(chance.wait_s(lasts_s), LONGEST_FACTOR * lasts_s)
            if do is Do.TRANSFER:
                for_s = 0.0
            steps.append(Step(at_s, do.value, _victim(chance, do, names), for_s))
    return steps


def _victim(chance: Chance, do: Do, names: list[str]) -> str:
    if chance.happens(LEADERS_SHARE):
        return LEADER
    if do is Do.CUT_OFF:
        return " ".join(sorted(chance.sample(names, 1 + chance.randrange(len(names) - 1))))
    return chance.choice(names)


def _operations(service: Service, seed: int, names: list[str], length_s: float) -> list[Step]:
    style = Chance(seed, "operations")
    every_s = style.choice((0.02, 0.05, 0.2))
    elsewhere = style.choice((0.0, 0.1))
    times = Chance(seed, "times of appends")
    if service.described is not None and service.described.adapts:
        return _turns(seed, names, times, every_s, length_s)
    if service.described is not None:
        return _calls(service, service.described, seed, names, times, every_s, length_s)
    steps: list[Step] = []
    bodies = Chance(seed, "bodies")
    for at_s in _times(times, every_s, length_s):
        member = times.choice(names) if times.happens(elsewhere) else LEADER
        steps.append(Step(at_s, Do.APPEND.value, member, body=service.next_body(bodies)))
    if service.query is None:
        return steps
    reads = Chance(seed, "times of reads")
    read_every_s = style.choice((0.02, 0.05, 0.2))
    for at_s in _times(reads, read_every_s, length_s):
        member = reads.choice(names) if reads.happens(READS_ANYWHERE) else LEADER
        steps.append(Step(at_s, Do.READ.value, member))
    return steps


def _times(chance: Chance, every_s: float, length_s: float) -> Iterator[float]:
    at_s = chance.wait_s(every_s)
    while at_s < length_s:
        yield at_s
        at_s += chance.wait_s(every_s)


def _turns(
    seed: int, names: list[str], times: Chance, every_s: float, length_s: float
) -> list[Step]:
    """Return the turns of clients. A client without a turn for long is like a slow one."""
    places = Chance(seed, "turns")
    steps: list[Step] = []
    for at_s in _times(times, every_s, length_s):
        member = places.choice(names) if places.happens(READS_ANYWHERE) else LEADER
        place = places.randrange(ADAPTIVE_CLIENTS)
        steps.append(Step(at_s, Do.TURN.value, member, client=place))
    return steps


def _calls(
    service: Service,
    described: Described,
    seed: int,
    names: list[str],
    times: Chance,
    every_s: float,
    length_s: float,
) -> list[Step]:
    """Return the calls of a service that is written for real processes, client by client."""
    # An object of its own: its state begins anew with each seed.
    made = Described(called("machine", type(described.service)), described.name)
    chances: dict[int, Chance] = {}
    steps: list[Step] = []
    for at_s in _times(times, every_s, length_s):
        turn, place = divmod(len(steps), CLIENTS)
        client = place + CLIENTS * (turn // CALLS_A_CLIENT)
        chance = chances.setdefault(client, Chance(seed, f"client {client}"))
        call = service.next_call(made, Caller(chance, client, len(steps)))
        do, member = Do.APPEND, LEADER
        if call.is_read:
            do, member = Do.READ, times.choice(names) if times.happens(READS_ANYWHERE) else LEADER
        steps.append(Step(at_s, do.value, member, call=call, client=client))
    return steps
