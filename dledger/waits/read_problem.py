"""Says why a member does not serve a read, for every state in which a read may fail. Pure."""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.member_state import Role
from dledger.status import JOINING, LEARNER, REMOVED, InstallStatus


class ReadFacts(NamedTuple):
    """What a member knows when a read fails.

    Attributes:
        role: as in Status.
        leader: the member that leads, if it knows one.
        term: its term.
        commits_in_own_term: whether it leads, and has committed an entry of its own term.
        applied: the last entry that its state includes; -1 if none.
        installing: the leader's snapshot that it receives.
        awaited: the last entry of the snapshot that its state machine waits for, if any.
        is_restoring: whether the state machine reads that snapshot now.
    """

    role: str
    leader: str | None
    term: int
    commits_in_own_term: bool
    applied: int
    installing: InstallStatus | None = None
    awaited: int | None = None
    is_restoring: bool = False


def stopped_leading(facts: ReadFacts) -> str:
    """Say why a read failed on a leader that stepped down."""
    now = "knows no leader" if facts.leader is None else f"follows {facts.leader}"
    return f"this member stopped leading before it could serve the read, and {now}"


def unconfirmed(facts: ReadFacts, wait_s: float) -> str:
    """Say why no leader confirmed a read within `wait_s` seconds."""
    within = f"within {wait_s:g} s"
    if facts.role == Role.LEADER.value:
        if facts.commits_in_own_term:
            return f"no quorum confirmed {within} that this member still leads"
        return f"this leader has committed nothing in term {facts.term} {within}"
    if facts.role != REMOVED and facts.leader is not None:
        return f"the leader, {facts.leader}, did not answer {within}"
    return _without_leader(facts)


def _without_leader(facts: ReadFacts) -> str:
    if facts.role == REMOVED:
        return "this member was removed from the group"
    if facts.role == JOINING:
        return "this member joins the group, and no leader has sent it the log yet"
    if facts.role == LEARNER:
        return "this learner knows no leader"
    return f"this member knows no leader in term {facts.term}: perhaps no majority is connected"


def not_applied(facts: ReadFacts, index: int) -> str:
    """Say why the state lacks the entry at `index`, which a confirmed read must see."""
    return f"{behind(facts)}, and the read needs entry {index}"


def too_old(facts: ReadFacts, lag_s: float, max_lag_s: float) -> str:
    """Say why the state, `lag_s` seconds old, is too old for a read that allows `max_lag_s`."""
    if facts.is_restoring:
        return behind(facts)
    if lag_s < float("inf"):
        return f"the state here is {lag_s:.3g} s old, {max_lag_s:g} were allowed"
    if facts.leader is None:
        return _without_leader(facts)
    return f"{behind(facts)}, and the leader has committed more or has not said how much"


def behind(facts: ReadFacts) -> str:
    """Say how far the state is, and what it waits for."""
    arriving = facts.installing
    if facts.is_restoring:
        return f"the state is being replaced by the leader's snapshot of entry {facts.awaited}"
    if arriving is not None and arriving.bytes_received < arriving.bytes_total:
        return (
            f"the leader's snapshot of entry {arriving.index} arrives: "
            f"{arriving.bytes_received} of {arriving.bytes_total} bytes"
        )
    if facts.awaited is not None or arriving is not None:
        index = facts.awaited if arriving is None else arriving.index
        return f"the leader's snapshot of entry {index} is here, and the log does not reach it yet"
    have = f"entries up to {facts.applied}" if facts.applied >= 0 else "no entry"
    return f"the state here includes {have}"
