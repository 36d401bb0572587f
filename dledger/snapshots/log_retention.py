"""Where a log may begin, given snapshots, policy and state machine. Pure.

Each of the three names an entry that has to stay; the log begins at the first of these entries or
before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.state_machine import RetainingMachine, StateMachine


def log_kept_from(machine: StateMachine) -> Callable[[], int] | None:
    """Return the machine's method `log_kept_from`; None if it has none."""
    return machine.log_kept_from if isinstance(machine, RetainingMachine) else None


def first_kept(
    policy: SnapshotPolicy, applied: int, snapshots: Sequence[int] | None, kept_from: int | None
) -> int:
    """Return the first entry that has to stay in the log.

    Args:
        policy: how many snapshots are kept, and how many entries stay beside them.
        applied: the last entry that the state machine has applied.
        snapshots: the last entry of each usable snapshot, the newest first; None for a state
            machine without snapshots.
        kept_from: the first entry that the state machine needs; None if it names none.
    """
    limits = [applied, applied - policy.trailing_entries + 1]
    if snapshots is not None:
        if len(snapshots) < policy.kept:
            return 0
        limits.append(snapshots[-1] + 1)
    elif kept_from is None:
        return 0  # each start rebuilds the state from all entries
    if kept_from is not None:
        limits.append(kept_from)
    return max(0, min(limits))


def kept_with_new_snapshots(policy: SnapshotPolicy, applied: int, kept_from: int) -> int:
    """Return what `first_kept` would return if all snapshots were up to date."""
    return first_kept(policy, applied, [applied] * policy.kept, kept_from)
