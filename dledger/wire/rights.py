"""What users of the log's port may do, and which request needs which right. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from dledger.wire.client_protocol import Operation


class Right(StrEnum):
    """What a user may be given at the log's port."""

    APPEND = "append"  # append entries, in sessions too
    READ = "read"  # read the entries of the log, and follow it
    QUERY = "query"  # call queries of the state machine
    WATCH = "watch"  # watch changes of the state machine
    STATUS = "status"  # the status and the alarms of members
    MEMBERS = "members"  # change the members; have one write a snapshot
    LEAD = "lead"  # move leadership

    __hash__ = str.__hash__  # an enum's own is a call of Python for each look-up


_APPEND = frozenset((Right.APPEND,))

# One of these rights is needed. Each operation stands here, and none has a default: a new one
# fails to load without a line. Every user has to find the leader. The client looks at
# the status before it reads, queries and watches (which requests are known, and which entries are
# held), and to show what it changed.
NEEDED: Mapping[Operation, frozenset[Right]] = {
    Operation.LEADER: frozenset(Right),
    Operation.STATUS: frozenset(Right) - _APPEND,
    Operation.APPEND: _APPEND,
    Operation.SESSION_OPEN: _APPEND,
    Operation.SESSION_APPEND: _APPEND,
    Operation.SESSION_KEEP_ALIVE: _APPEND,
    Operation.SESSION_CLOSE: _APPEND,
    Operation.ENTRIES: frozenset((Right.READ,)),
    Operation.QUERY: frozenset((Right.QUERY,)),
    Operation.WATCH: frozenset((Right.WATCH,)),
    Operation.CHANGE: frozenset((Right.MEMBERS,)),
    Operation.SNAPSHOT: frozenset((Right.MEMBERS,)),
    Operation.TRANSFER: frozenset((Right.LEAD,)),
}
assert NEEDED.keys() == set(Operation), "an operation needs no right"


class Authority(Protocol):
    """Says who uses the log's port, and what each user may do there.

    Members ask it for each request, so an answer that changes counts at once, also on connections
    that are open. It must not block, and not raise.
    """

    @property
    def asks(self) -> bool:
        """Whether callers have to prove who they are. Without it everybody may do everything."""
        ...

    @property
    def member_secrets(self) -> tuple[bytes, ...]:
        """The secrets by which members prove themselves: this one shows the first.

        None at all: their certificates prove them. Without TLS no other member is believed then.
        """
        ...

    def knows(self, user: str) -> bool:
        """Return whether there is such a user now."""
        ...

    def secret_of(self, user: str) -> bytes | None:
        """Return the secret of a user; None if there is no such user, or only by certificate."""
        ...

    def allows(self, user: str, right: Right, host: str) -> bool:
        """Return whether a user has a right now, from this IP address ("" if unknown)."""
        ...
