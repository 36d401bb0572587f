"""What a node says about itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """How a leader sees one other member; on a follower only `connected` is known."""

    connected: bool
    phase: str | None
    match_index: int | None
    next_index: int | None
    proven: bool | None  # False: it lost its data, and does not count until it has them again
    problem: str | None  # why there is no connection


@dataclass(frozen=True, slots=True)
class Status:
    """One node at one moment. Indexes are -1 where there is nothing yet."""

    group: str
    node_id: str
    role: str
    ready: bool  # a leader that has applied an entry of its own term: it may serve
    proven: bool  # False: its folder is new or lost something, so it neither votes nor counts yet
    term: int
    leader: str | None
    first_index: int
    last_index: int
    durable: int
    committed: int
    applied: int
    pending_entries: int
    pending_bytes: int
    scrubbed_through: int  # the background check of the log on disk, in its present pass
    scrub_passes: int
    scrub_damage: str | None  # what it found wrong first
    transfer_target: str | None  # whom leadership is being handed to
    peers: dict[str, PeerStatus]

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON and msgpack."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Who leads, as this node knows it. `ready` as in Status."""

    role: str
    term: int
    leader: str | None
    ready: bool
