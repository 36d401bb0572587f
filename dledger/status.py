"""The status of a node."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final

from dledger.core.member_state import MemberState, Role
from dledger.core.replica import Replica
from dledger.renamed import renamed_fields

# How members of all versions and readers of JSON know what is named otherwise here.
_TOLD_AS: Final = {"loop_held_s": "loop_held_seconds", "sync_s": "sync_seconds"}

# The kinds of alarms about what is not wrong yet.
CERTIFICATE_ENDS: Final = "certificate_ends"
WARNINGS: Final = frozenset({CERTIFICATE_ENDS})

# The roles of a follower that does not vote.
LEARNER, REMOVED, JOINING = "learner", "removed", "joining"


def role_name(state: MemberState) -> str:
    """Return the role of a member in Raft, or the reason why it does not vote."""
    if state.role is not Role.FOLLOWER or state.votes:
        return state.role.value
    if state.self_id in state.membership.members:
        return LEARNER
    # The log and snapshots of a member that joins begin with configurations from before it was
    # admitted: it is only known to be removed if it was a member before.
    return REMOVED if state.self_id in state.membership.ever_members else JOINING


@dataclass(frozen=True, slots=True)
class LearnerStatus:
    """The progress of a learner, as its leader sees it; unknown on other members."""

    lag_entries: int | None
    verdict: str | None  # of its catching up, see `dledger.core.membership.catch_up`


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The members of the group, as far as a node knows."""

    index: int  # of the configuration entry; -1 for what the group began with
    voters: list[str]
    outgoing: list[str]  # the old voters, while a joint phase lasts
    learners: dict[str, LearnerStatus]
    addresses: dict[str, str]


def group_status(replica: Replica) -> GroupStatus:
    membership = replica.state.membership
    configuration = membership.configuration
    return GroupStatus(
        membership.index,
        sorted(configuration.voters),
        sorted(configuration.outgoing),
        {learner: _learner(replica, learner) for learner in sorted(configuration.learners)},
        dict(configuration.addresses),
    )


def _learner(replica: Replica, learner: str) -> LearnerStatus:
    dispatcher = replica.dispatchers.get(learner)
    catch_up = replica.followers.catch_ups.get(learner)
    if dispatcher is None or catch_up is None:
        return LearnerStatus(None, None)
    lag = replica.view.last_index - dispatcher.match_index
    return LearnerStatus(lag, catch_up.verdict.value)


@dataclass(frozen=True, slots=True)
class InstallStatus:
    """A snapshot that is being received: its last entry, and how much of its file has arrived."""

    index: int
    bytes_received: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """How a leader sees one other member; on a follower only `connected` is known."""

    connected: bool
    phase: str | None
    match_index: int | None
    next_index: int | None
    proven: bool | None  # False: it lost its data, and does not count until it has them again
    problem: str | None  # why there is no connection, or why the peer cannot catch up
    installing: InstallStatus | None = None  # the snapshot that it is being sent
    answered_s: float | None = None  # since it last answered this leader
    machine_version: int | None = None  # up to which its state machine reads; None: not told


@dataclass(frozen=True, slots=True)
class MemberAlarm:
    """Something that an operator must look at: its kind, the member it is about, and a text."""

    # "orphans" or "second_process", see docs/failures.md; "certificate_ends" or
    # "certificate_ended", see docs/security.md
    kind: str
    member: str
    text: str

    @property
    def is_warning(self) -> bool:
        """Whether nothing is wrong yet."""
        return self.kind in WARNINGS


@renamed_fields(loop_held_seconds="loop_held_s", sync_seconds="sync_s")
@dataclass(frozen=True, slots=True)
class Status:
    """One node at one moment. Indexes are -1 where there is nothing yet."""

    group: str
    node_id: str
    role: str
    ready: bool  # a leader that has applied an entry of its own term: it may serve
    proven: bool  # False: its folder is new or lost data, so it neither votes nor counts yet
    term: int
    leader: str | None
    first_index: int
    last_index: int
    durable: int  # what counts here: synced, or with `flush_interval_ms` written
    committed: int
    applied: int
    pending_entries: int
    pending_bytes: int
    scrubbed_through: int  # the background check of the log on disk, in its present pass
    scrub_passes: int
    scrub_damage: str | None  # the first damage that it found
    transfer_target: str | None  # the member that leadership is being handed to
    peers: dict[str, PeerStatus]
    members: GroupStatus
    newest_snapshot: int = -1  # the last entry in it
    installing: InstallStatus | None = None  # the leader's snapshot that this node receives
    refused_callers: int = 0  # by this node's process, see docs/security.md
    loop_holds: int = 0  # of the event loop, longer than 50 ms, in this node's process
    loop_held_s: float = 0.0  # what they took together
    generation: int = 0  # how often the group was begun again from one member: `dledger recover`
    birth: str = ""  # of the group, 32 hexadecimal digits; empty until the member knows it
    leader_contact_s: float | None = None  # since it heard one; None: never, or it leads
    syncs: int = 0  # to disk, since the node was opened
    sync_s: float = 0.0  # what they took together
    synced: int = -1  # the last entry here that survives a power cut
    log_bytes: int = 0
    disk_free_bytes: int = 0  # of the file system that the folder is on
    disk_total_bytes: int = 0
    # Up to which version the state machines of all members read entries: of the oldest one. None
    # while one of them is not connected or has not told, or if the machine has no versions.
    machine_version: int | None = None
    machine_stopped: str | None = None  # why it applies no more: it does not read an entry
    disk_short: str | None = None  # why it takes no appends, and what to do; None if it does
    alarms: list[MemberAlarm] = field(default_factory=list)  # of this node and its peers
    certificate_ends_at: float | None = None  # seconds since 1970; None without TLS
    not_begun: str | None = None  # why its folder is empty and it does not begin the group

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON and msgpack."""
        return {_TOLD_AS.get(name, name): value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class RoleChange:
    """The leader and this node's role, as the node knows them. `ready` as in Status."""

    role: str
    term: int
    leader: str | None
    ready: bool
