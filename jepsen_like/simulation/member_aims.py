"""By mistake: the group and the faults under which bare members show it within some seeds.

A swarm does a little of everything, so it meets a rare mistake once in hundreds of seeds. An aim
says what the mistake needs. See `jepsen_like.simulation.broker.aims` for those of brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jepsen_like.simulation.event_loop import NEVER

# Fields of Swarm; a mapping stands for fields of that style.
Aim = Mapping[str, Any]

_CUT_LEADERS: Aim = {
    "nodes": 3,
    "network": {"leader_cuts": 0.9, "one_way_cuts": 0.0},
    "faults": {"partition_every_s": 0.7, "crash_every_s": NEVER, "pause_every_s": NEVER},
    "load": {"read_every_s": 0.03, "append_every_s": 0.03},
}
_LEASES: Aim = {
    **_CUT_LEADERS,
    "leadership": {"max_clock_drift": 0.3, "clock_spread": 0.3, "member_reads": 0.0},
}
_READS: Aim = {**_CUT_LEADERS, "leadership": {"max_clock_drift": None, "member_reads": 0.0}}
_CHANGES: Aim = {
    "nodes": 3,
    "churn": {"change_every_s": 0.3, "spares": 3},
    "faults": {"partition_every_s": 0.7, "crash_every_s": 2.0},
}
_INSTALLS: Aim = {
    "nodes": 3,
    "network": {"connections": False, "ordered": False, "loss": 0.15, "duplication": 0.2},
    "snapshots": {"every_entries": 3, "trailing_entries": 0, "piece_bytes": 20},
    "load": {"append_every_s": 0.03},
}
_FULL_DISKS: Aim = {"room": {"fill_every_s": 1.0, "reserve_bytes": 98_304}}

MEMBER_AIMS: Final[Mapping[str, Aim]] = {
    # Leaders that end, or hand over, before a quorum has their entries.
    "commit-older-term": {
        "nodes": 5,
        "election_timeout_s": 0.15,
        "heartbeat_interval_s": 0.06,
        "network": {"leader_cuts": 0.5, "one_way_cuts": 0.3, "mean_delay_s": 0.03},
        "faults": {"partition_every_s": 0.7, "crash_every_s": 0.7, "crash_all": 0.1},
        "load": {"read_every_s": 0.03, "append_every_s": 0.03},
        "leadership": {"transfer_every_s": 0.5},
    },
    "full-disk-is-final": _FULL_DISKS,
    "grown-group-forgotten": {
        "nodes": 1,
        "wipe_every_s": 0.5,
        "churn": {"change_every_s": 1.0, "spares": 3},
    },
    "install-answer-lost-pins": _INSTALLS,
    "joint-decided-by-one-half": _CHANGES,
    # A leader that stalls, and is cut off when it goes on.
    "lease-extended-by-a-stall": {
        **_LEASES,
        "election_timeout_s": 0.15,
        "heartbeat_interval_s": 0.015,
        "network": {},
        "faults": {
            "crash_every_s": NEVER,
            "pause_every_s": 0.3,
            "pause_mean_s": 0.3,
            "cut_with_pause": 0.7,
            "stall_every_s": 0.5,
            "stall_mean_s": 0.3,
        },
    },
    # Answers that take a good part of an election timeout.
    "lease-from-answer": {
        **_LEASES,
        "election_timeout_s": 0.15,
        "heartbeat_interval_s": 0.015,
        "network": {"leader_cuts": 0.9, "least_delay_s": 0.01, "mean_delay_s": 0.03},
        "faults": {"partition_every_s": 0.7, "crash_every_s": NEVER},
        "leadership": {**_LEASES["leadership"], "transfer_every_s": NEVER},
        "signs": {"ends_seen": False, "wrong_every_s": NEVER},
    },
    "lease-ignores-drift": _LEASES,
    "lease-kept-in-transfer": {
        **_LEASES,
        "leadership": {**_LEASES["leadership"], "transfer_every_s": 0.5},
    },
    "many-voters-at-once": _CHANGES,
    "newcomers-are-believed": {**_CHANGES, "wipe_every_s": 1.0},
    "pieces-in-any-order": _INSTALLS,
    "pushes-of-any-term": _CUT_LEADERS,
    "read-before-own-commit": _READS,
    "read-without-round": _READS,
    "removal-kept-secret": {
        **_CHANGES,
        "faults": {"partition_every_s": NEVER, "crash_every_s": NEVER},
    },
    "room-is-never-found": _FULL_DISKS,
    "sign-believed-under-leases": {**_LEASES, "signs": {"ends_seen": True, "wrong_every_s": 0.3}},
}
