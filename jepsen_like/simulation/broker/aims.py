"""By seeded bug: the load and the faults under which it shows within a few seeds.

A swarm does a little of everything, to find unknown bugs, and a rare mistake shows once in hundreds
of seeds. Which seeds those are changes with every change of the product. An aim makes the mistake
show from any seed on: it says what the mistake needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jepsen_like.simulation.broker.broker_swarm import Aim
from jepsen_like.simulation.event_loop import NEVER

_POWER_CUTS: Mapping[str, object] = {
    "crash_every_s": 0.5,
    "power_cut": 1.0,
    "closed": 0.0,
}
# With late flushes a power cut loses acknowledged entries.
_NO_LATE_FLUSH: Mapping[str, object] = {"flush_interval_s": None}
_KILLS: Mapping[str, object] = {"crash_every_s": 0.5, "power_cut": 0.0, "crash_all": 0.3}
_DROPS: Mapping[str, int] = {"drop log": 20}
_WHOLE_NETWORK: Mapping[str, object] = {"partition_every_s": NEVER}
_NOTHING_WAITS: Mapping[str, int] = {"send delayed": 0, "send half": 0}
_LITTLE_LOG: Mapping[str, object] = {"segment_bytes": 1_024, "batch_bytes": 1_000}

_POPS: Mapping[str, int] = {
    **{"pop": 60, "acknowledge pop": 60, "hide pop": 10, "send": 80},
    **{"delete topic": 0, "send half": 0, "send delayed": 0},
}
_COMMITS: Mapping[str, int] = {"reset offsets": 30, "commit offset": 60, "delete topic": 0}
_ONE_TOPIC: Mapping[str, object] = {"request_every_s": 0.01, "topics": 1, "wrong_member": 0.0}

_OFTEN: Mapping[str, object] = {"request_every_s": 0.01, "wrong_member": 0.0}
_DEAD_LETTERS: Mapping[str, int] = {
    **{"send": 60, "send back": 60, "redrive": 60, "delete topic": 0, "pop": 0},
    **{"send half": 0, "send delayed": 0, "drop log": 0},
}
_GIVEN_UP: Mapping[str, int] = {
    **{"send half": 40, "end transaction": 0, "be producer": 20, "delete topic": 0},
    **{"change settings": 0, "drop log": 0},
}
# An operator has transactions given up after one question.
_RESUMED: Mapping[str, int] = {**_GIVEN_UP, "change settings": 10, "resume": 80}

_IN_ORDER: Mapping[str, int] = {
    **{"send in order": 60, "consume in order": 120, "pull filtered": 30, "append raw": 0},
    **{"delete topic": 0, "send half": 0, "send delayed": 0, "drop log": 0, "lock": 0},
}
_DEPOSED: Mapping[str, object] = {"crash_every_s": 0.7, "partition_every_s": 1.0}

_REMADE: Mapping[str, int] = {
    **{"send to remade": 120, "consume remade": 480, "remake": 0, "reset remade": 0},
    **{"append raw": 0, "drop log": 0, "pop": 0, "send": 0},
}
_MOVED: Mapping[str, int] = {**_REMADE, "reset remade": 20}
_NEWEST: Mapping[str, object] = {**_OFTEN, "updated_s": 0.0}
_CALM: Mapping[str, object] = {"crash_every_s": NEVER, "partition_every_s": NEVER}

AIMS: Final[Mapping[str, Aim]] = {
    # Deletions and creations of one topic overtake commits, which wait for the next batch.
    "offsets-of-an-earlier-topic": Aim(
        group={"sync_mean_s": 0.03, "turn_mean_s": 0.000_5, "quick_syncs": False, "slow_sync": 0.0},
        faults={"crash_every_s": 4.0, "partition_every_s": NEVER},
        style={"request_every_s": 0.01, "topics": 1, "wrong_member": 0.0},
        weights={"put topic": 20, "delete topic": 20, "commit offset": 100, "send": 10},
    ),
    # A queue is rebuilt from a log without its beginning, and read after the next restart.
    "file-before-the-first-unit-missing": Aim(
        group={**_LITTLE_LOG, "nodes": 1},
        faults={**_KILLS, "crash_every_s": 0.3, "down_mean_s": 0.1},
        snapshots={"every_entries": 5, "trailing_entries": 0},
        style={"request_every_s": 0.01, "topics": 1, "lose_queues_every_s": 0.1},
        weights={**_NOTHING_WAITS, "drop log": 2, "send": 80, "delete topic": 0},
    ),
    # The first record of a queue in the log is one that the fold passed over.
    "rebuild-takes-what-was-passed-over": Aim(
        group={**_LITTLE_LOG, "nodes": 1},
        faults={**_KILLS, "crash_every_s": 1.0, "down_mean_s": 0.2},
        snapshots={"every_entries": 5, "trailing_entries": 0},
        style={"request_every_s": 0.01, "topics": 1, "lose_queues_every_s": 0.1},
        weights={**_NOTHING_WAITS, **_DROPS, "append raw": 60, "delete topic": 1},
    ),
    "passed-over-not-in-snapshots": Aim(
        faults=_KILLS, snapshots={"every_entries": 20}, style=_OFTEN, weights={"append raw": 60}
    ),
    "rebuild-ignores-deletions": Aim(
        faults=_KILLS,
        style={"request_every_s": 0.01, "topics": 1, "lose_queues_every_s": 0.1},
        weights={"delete topic": 10, "put topic": 20, "send": 80, "drop log": 0},
    ),
    # A member that was sent a snapshot gets leadership at once.
    "damaged-queues-served": Aim(
        group={**_LITTLE_LOG, "nodes": 3, "election_timeout_s": 0.15, "wipe_every_s": 2.0},
        faults={**_WHOLE_NETWORK, "crash_every_s": 0.8, "power_cut": 0.0, "down_mean_s": 1.0},
        snapshots={"every_entries": 5, "trailing_entries": 0, "piece_bytes": 4_096},
        leadership={"transfer_every_s": 0.03},
        style={"request_every_s": 0.01, "lose_queues_every_s": NEVER},
        weights={**_NOTHING_WAITS, "drop log": 40, "send": 80, "pop": 0},
    ),
    # A snapshot is written between the loss of a file and its rebuild, which a power cut
    # interrupts.
    "damaged-files-marked": Aim(
        group={**_NO_LATE_FLUSH, "nodes": 1},
        faults={**_POWER_CUTS, "crash_every_s": 0.3, "down_mean_s": 0.3},
        snapshots={"every_entries": 5},
        style={"request_every_s": 0.01, "topics": 1, "lose_queues_every_s": 0.1},
        weights={"send": 80, "delete topic": 0},
    ),
    "mended-files-believed": Aim(
        group={**_LITTLE_LOG, **_NO_LATE_FLUSH},
        faults=_POWER_CUTS,
        snapshots={"every_entries": 20, "trailing_entries": 0},
        style={"request_every_s": 0.03, "lose_queues_every_s": 0.2},
    ),
    "queue-folders-not-synced": Aim(
        group=_NO_LATE_FLUSH,
        faults=_POWER_CUTS,
        snapshots={"every_entries": 5},
        style={"request_every_s": 0.01, "lose_queues_every_s": NEVER},
    ),
    "commits-count-during-resets": Aim(style=_ONE_TOPIC, weights=_COMMITS),
    "resets-not-in-snapshots": Aim(
        faults=_KILLS, snapshots={"every_entries": 20}, style=_ONE_TOPIC, weights=_COMMITS
    ),
    "send-backs-acknowledged-early": Aim(
        group={"nodes": 3},
        faults={"crash_every_s": 0.7, "partition_every_s": 1.0},
        style={"request_every_s": 0.01},
        weights={"send back": 80, "send": 80, "delete topic": 0},
    ),
    "pops-not-in-snapshots": Aim(
        faults=_KILLS, snapshots={"every_entries": 20}, style=_ONE_TOPIC, weights=_POPS
    ),
    "old-handles-acknowledge": Aim(style=_ONE_TOPIC, weights=_POPS),
    "gaps-in-order-forgotten": Aim(style=_ONE_TOPIC, weights=_POPS),
    "pops-acknowledged-early": Aim(
        group={"nodes": 3},
        faults={"crash_every_s": 0.7, "partition_every_s": 1.0},
        style=_ONE_TOPIC,
        weights=_POPS,
    ),
    "settings-not-in-snapshots": Aim(
        faults=_KILLS, snapshots={"every_entries": 5}, style=_OFTEN, weights={"change settings": 40}
    ),
    "settings-acknowledged-early": Aim(
        group={"nodes": 3}, faults=_DEPOSED, style=_OFTEN, weights={"change settings": 120}
    ),
    "redriven-not-in-snapshots": Aim(
        faults=_KILLS, snapshots={"every_entries": 20}, style=_OFTEN, weights=_DEAD_LETTERS
    ),
    "redrives-acknowledged-early": Aim(
        group={"nodes": 3}, faults=_DEPOSED, style=_OFTEN, weights=_DEAD_LETTERS
    ),
    "dead-letters-redriven-again": Aim(style=_OFTEN, weights=_DEAD_LETTERS),
    "resumed-not-in-snapshots": Aim(
        group={"nodes": 1},
        faults={**_KILLS, "crash_every_s": 1.0, "down_mean_s": 0.1},
        snapshots={"every_entries": 20},
        style=_OFTEN,
        weights=_RESUMED,
    ),
    "transactions-resumed-again": Aim(style=_OFTEN, weights=_RESUMED),
    "given-up-early": Aim(
        faults={"crash_every_s": NEVER, "partition_every_s": NEVER},
        style=_OFTEN,
        weights=_GIVEN_UP,
    ),
    "earlier-generations-count": Aim(faults=_CALM, style=_NEWEST, weights=_MOVED),
    "members-join-by-any-pull": Aim(faults=_CALM, style=_NEWEST, weights=_MOVED),
    "members-stay-through-resets": Aim(faults=_CALM, style=_NEWEST, weights=_MOVED),
    "deletions-take-ends-along": Aim(
        faults=_CALM, style=_NEWEST, weights={**_REMADE, "remake": 10}
    ),
    "what-waits-goes-by-name": Aim(
        style=_ONE_TOPIC,
        weights={
            **{"send delayed": 60, "send half": 40, "delete topic": 20, "put topic": 40},
            **{"append raw": 0, "send": 10},
        },
    ),
    "resumed-for-another-topic": Aim(
        faults=_CALM,
        style=_ONE_TOPIC,
        weights={**_RESUMED, "delete topic": 2, "put topic": 10, "append raw": 0, "send": 0},
    ),
    "locks-of-two": Aim(style=_ONE_TOPIC, weights=_IN_ORDER),
    "offsets-acknowledged-early": Aim(
        group={"nodes": 3}, faults=_DEPOSED, style=_ONE_TOPIC, weights=_IN_ORDER
    ),
    "conditions-ignored": Aim(style=_ONE_TOPIC, weights=_IN_ORDER),
    "filtered-pulls-go-too-far": Aim(style=_ONE_TOPIC, weights=_IN_ORDER),
    # A member that was away gets a snapshot of a topic that was deleted and made again meanwhile.
    "files-of-another-state-believed": Aim(
        group={**_LITTLE_LOG, "nodes": 3},
        faults={"crash_every_s": 0.8, "power_cut": 0.0, "down_mean_s": 2.0},
        snapshots={"every_entries": 5, "trailing_entries": 0, "piece_bytes": 4_096},
        # From format 6 on no queue has offsets of an earlier one.
        style={**_ONE_TOPIC, "lose_queues_every_s": NEVER, "updated_s": NEVER},
        weights={
            **{"send to remade": 0, "consume remade": 0, "pop remade": 0, "remake": 0},
            **{"pop": 0, "commit offset": 0, "lock": 0, "ask": 0, "append raw": 0},
            **{**_NOTHING_WAITS, "drop log": 30, "delete topic": 10, "put topic": 20, "send": 100},
        },
    ),
}
