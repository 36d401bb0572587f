"""What a member's protocol must know before it starts."""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import MAX_CONFIGURATION_BYTES

# A heartbeat that would follow the last one sooner than this share of the interval is left out.
LEAST_HEARTBEAT_GAP = 0.1

# How long a read may take, in election timeouts: a leader's end may go unnoticed for two of them,
# an election takes a fraction of one, and a split vote another two.
READ_WAIT_TIMEOUTS = 4.0


class ReplicaConfig(NamedTuple):
    """What a member must know. Times in seconds; an election waits one to two timeouts.

    `began_with` is the configuration that the group began with; a member that is still to join a
    group knows the empty one. What is in force comes from the log.

    With `aligned_heartbeats` all leaders of a process send theirs at the same moments: at multiples
    of the interval, by their common clock. `max_clock_drift` is the share by which any member's
    clock may run faster or slower than true time; None: no leader serves reads by lease, and no
    voter promises anything. `early_spread` is the same on all members, and differs between groups:
    see EarlyTurns.
    """

    self_id: str
    began_with: Configuration
    election_timeout_s: float = 0.5
    heartbeat_interval_s: float = 0.1
    max_clock_drift: float | None = None
    preferred_leader: str | None = None
    max_change_bytes: int = MAX_CONFIGURATION_BYTES  # what a segment of the log has room for
    aligned_heartbeats: bool = False
    early_spread: int = 0

    def next_heartbeat_at(self, now: float) -> float:
        """When a leader that sends heartbeats now sends the next ones."""
        interval_s = self.heartbeat_interval_s
        if not self.aligned_heartbeats:
            return now + interval_s
        due = (now // interval_s + 1.0) * interval_s
        return due if due - now >= LEAST_HEARTBEAT_GAP * interval_s else due + interval_s

    @property
    def read_wait_s(self) -> float:
        """A read that is not confirmed by then ends with an error."""
        return READ_WAIT_TIMEOUTS * self.election_timeout_s

    @property
    def read_repeat_s(self) -> float:
        """When a question to the leader that got no answer is asked again."""
        return 2.0 * self.heartbeat_interval_s
