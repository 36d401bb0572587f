"""The settings of one member's protocol."""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.admission.standing import Told
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import MAX_CONFIGURATION_BYTES

# An aligned heartbeat is skipped if it would follow the last one within this share of the interval.
LEAST_HEARTBEAT_GAP = 0.1

# The time limit of a read, in election timeouts. It may take two until the loss of a leader is
# noticed; an election takes a fraction of one, and a split vote another two.
READ_WAIT_TIMEOUTS = 4.0

# A leader gives up after a silence of so many election timeouts and one heartbeat interval: no
# sooner than the last of its followers stands. If all followers pause for less, no other member
# leads, and giving up would only cost an election.
QUORUM_SILENCE_TIMEOUTS = 2.0

# The longest interval at which a member checks whether it is on time, in election timeouts. After
# one delay and the heartbeat interval before it, enough time is left to hear a leader that was
# stopped as well.
LOOK_INTERVAL = 0.2


class ReplicaConfig(NamedTuple):
    """The settings of one member. Times in seconds; an election waits one to two timeouts.

    `began_with` is the configuration that the group began with; it is empty on a member that has
    yet to join its group. The configuration in force comes from the log.

    With `aligned_heartbeats` all leaders of a process send heartbeats at the same moments: at
    multiples of the interval, by their common clock. `max_clock_drift` is the share by which any
    member's clock may run faster or slower than true time. With None no leader serves reads by
    lease, and no voter promises to refuse candidates. `early_spread` is the same on all members of
    a group, and differs between groups: see EarlyTurns. `recall_timeouts` is how long a member that
    starts waits for what the others remember of it (Recalling), in election timeouts; with 0 it
    does not ask.

    `told` is what the operator or a note outside of the folder says about the group. `calls_wait_s`
    is how long an only first voter with an empty folder waits for calls before it begins its group:
    longer than the pause of other members between two calls.
    """

    self_id: str
    began_with: Configuration
    election_timeout_s: float = 0.5
    heartbeat_interval_s: float = 0.1
    max_clock_drift: float | None = None
    preferred_leader: str | None = None
    max_change_bytes: int = MAX_CONFIGURATION_BYTES  # less if segments of the log are short
    aligned_heartbeats: bool = False
    early_spread: int = 0
    recall_timeouts: float = 0.0
    told: Told = Told.NOTHING
    calls_wait_s: float = 0.25

    def next_heartbeat_at(self, now: float) -> float:
        """Return when a leader that sends heartbeats at `now` sends the next ones."""
        interval_s = self.heartbeat_interval_s
        if not self.aligned_heartbeats:
            return now + interval_s
        due = (now // interval_s + 1.0) * interval_s
        return due if due - now >= LEAST_HEARTBEAT_GAP * interval_s else due + interval_s

    @property
    def look_interval_s(self) -> float:
        """The interval at which a member checks whether it is on time. A follower that hears its
        leader acts that often anyway.
        """
        return min(self.heartbeat_interval_s, LOOK_INTERVAL * self.election_timeout_s)

    @property
    def quorum_silence_s(self) -> float:
        """How long a leader waits for the answers of a quorum before it gives up."""
        return QUORUM_SILENCE_TIMEOUTS * self.election_timeout_s + self.heartbeat_interval_s

    @property
    def read_wait_s(self) -> float:
        """The time limit of a read; a read that is not confirmed by then fails."""
        return READ_WAIT_TIMEOUTS * self.election_timeout_s

    @property
    def read_repeat_s(self) -> float:
        """The interval at which an unanswered question to the leader is repeated."""
        return 2.0 * self.heartbeat_interval_s
