"""Why a member should be given no clients now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dledger.core.member_state import Role
from dledger.status import REMOVED, Status

NOT_OPEN = "no member is open: its log is being read"


def reasons(members: Iterable[Status]) -> Iterator[str]:
    """Yield what members wait for, a line each; nothing if all are ready."""
    found = list(members)
    if not found:
        yield NOT_OPEN
    for status in found:
        for reason in _reasons_of(status):
            yield f"{status.group}/{status.node_id}: {reason}"


def _reasons_of(status: Status) -> Iterator[str]:
    if status.role == REMOVED:
        yield "it no longer belongs to the group"
        return
    if status.not_begun is not None:
        yield status.not_begun
    if status.leader is None:
        yield "no leader is known"
    elif status.role == Role.LEADER.value and not status.ready:
        yield "it leads, and has not yet applied an entry of its term"
    if not status.proven:
        yield "its folder is new or lost data: it neither votes nor counts yet"
    if (snapshot := status.installing) is not None:
        yield (f"it receives a snapshot: {snapshot.bytes_received} of {snapshot.bytes_total} bytes")
    for problem in (status.machine_stopped, status.disk_short):
        if problem is not None:
            yield problem
