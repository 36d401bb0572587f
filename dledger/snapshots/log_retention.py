"""Where a log may begin: what snapshots, policy and state machine leave of it. Pure.

Each of them names an entry that has to stay; the first of these counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.state_machine import RetainingMachine, StateMachine


def log_kept_from(machine: StateMachine) -> Callable[[], int] | None:
    """How to ask the machine which entries have to stay; None for one that does not say."""
    return machine.log_kept_from if isinstance(machine, RetainingMachine) else None


def first_kept(
    policy: SnapshotPolicy, applied: int, snapshots: Sequence[int] | None, kept_from: int | None
) -> int:
    """The first entry that has to stay in the log.

    Args:
        policy: how many snapshots there have to be, and how many entries stay beside them.
        applied: the last entry that the state machine has.
        snapshots: the last entry of each one that a node could begin with, the newest first; None
            for a state machine that cannot be saved.
        kept_from: what the state machine says; None for one that does not say.
    """
    limits = [applied, applied - policy.trailing_entries + 1]
    if snapshots is not None:
        if len(snapshots) < policy.kept:
            return 0
        limits.append(snapshots[-1] + 1)
    elif kept_from is None:
        return 0  # it is made anew from all entries at each start
    if kept_from is not None:
        limits.append(kept_from)
    return max(0, min(limits))


def kept_with_new_snapshots(policy: SnapshotPolicy, applied: int, kept_from: int) -> int:
    """What `first_kept` would be if all snapshots were as new as can be."""
    return first_kept(policy, applied, [applied] * policy.kept, kept_from)
