"""Deliberate transfers of leadership: the reasons to hand over, and the running transfer.

A transfer (Raft thesis 3.10) first brings the other voter up to date. Meanwhile the leader accepts
no proposals, so the target catches up with a log that does not grow. Once the target has all
entries, the leader tells it to stand at once. The leader gives up one election timeout after the
beginning, and goes on leading. A message that arrives later does no harm: the target needs the
votes of a quorum like any candidate, and only a complete log gets them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from dledger.core.agenda import REPLICATE, TELL, TICK
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.member_state import Role
from dledger.core.shared_parts import SharedParts
from dledger.errors import NotLeader, TransferFailed

# How long the preferred member must be healthy before the first attempt, in election timeouts.
FIRST_WAIT_TIMEOUTS = 4.0
# The longest wait between attempts: some four minutes with the default timeout.
LAST_WAIT_TIMEOUTS = 512.0
# A leadership of the preferred member that lasts so long resets the wait: a minute by default.
STABLE_TIMEOUTS = 120.0

# A preferred leader that lacks no more counts as caught up: the transfer waits for the rest.
NEARLY_CAUGHT_UP_ENTRIES = 1_000

Dispatchers = Mapping[str, EntryDispatcher]


class PreferredLeader:
    """Decides when a leader hands over to the member that the operator prefers as leader.

    The preferred member must first be healthy for a while. After each attempt, and each time its
    leadership ended soon, the next attempt waits twice as long, up to a bound. So a preferred
    member with a bad disk costs the group a few elections an hour, and not one every second. This
    view of one member lives as long as the process.
    """

    __slots__ = ("_healthy_since", "_led_since", "_timeout_s", "_wait_s", "name")

    def __init__(self, name: str | None, timeout_s: float) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._wait_s = FIRST_WAIT_TIMEOUTS * timeout_s
        self._led_since: float | None = None
        self._healthy_since: float | None = None

    def observe(self, leader: str | None, now: float) -> None:
        """Note the present leader. While it is None, the last known leader may still lead."""
        if leader == self.name:
            if self._led_since is None:
                self._led_since = now
        elif leader is not None and self._led_since is not None:
            stable = now - self._led_since >= STABLE_TIMEOUTS * self._timeout_s
            self._led_since = None
            self._healthy_since = None
            if stable:
                self._wait_s = FIRST_WAIT_TIMEOUTS * self._timeout_s
            else:
                self._wait_longer()

    def due(self, healthy: bool, now: float) -> bool:
        """Return whether to hand over now. A healthy member answers and has caught up."""
        if not healthy:
            self._healthy_since = None
            return False
        if self._healthy_since is None:
            self._healthy_since = now
        if now - self._healthy_since < self._wait_s:
            return False
        self._healthy_since = None
        self._wait_longer()
        return True

    def _wait_longer(self) -> None:
        self._wait_s = min(2 * self._wait_s, LAST_WAIT_TIMEOUTS * self._timeout_s)


class LeaderTransfer:
    """One transfer, on the leader. `end` says why it was given up; it is None while it runs."""

    __slots__ = ("deadline", "end", "last_index", "target", "tell_at")

    def __init__(self, target: str, last_index: int, deadline: float) -> None:
        self.target = target
        self.last_index = last_index  # the log's end, which is fixed during the transfer
        self.deadline = deadline
        self.end: str | None = None
        self.tell_at = float("-inf")

    def must_tell(self, match_index: int, now: float, repeat_s: float) -> bool:
        """Return whether to tell the target now to stand: it has all entries, and was not told
        within the last `repeat_s` seconds. Telling it again covers a lost message.
        """
        if match_index < self.last_index or now < self.tell_at:
            return False
        self.tell_at = now + repeat_s
        return True

    def hopeless(self, voters: Container[str], now: float) -> str | None:
        """Return why the leader must give up, if it must."""
        if self.target not in voters:
            return "it is no longer a voter"
        if now >= self.deadline:
            return "it did not take over within an election timeout"
        return None


def choose_target(
    wanted: str | None, dispatchers: Dispatchers, now: float, timeout_s: float
) -> str:
    """Return the voter to hand leadership to: `wanted`, or else the voter with the longest log
    among those that answered within the last `timeout_s` seconds.

    Raises TransferFailed if `wanted` is not another voter or is in doubt, or if no voter answers.
    """
    if wanted is not None:
        if wanted not in dispatchers:
            raise TransferFailed(wanted, f"it is not one of the other voters {list(dispatchers)}")
        if not dispatchers[wanted].proven:
            raise TransferFailed(wanted, "it lost its data and has not caught up yet")
        return wanted
    alive = [d for d in dispatchers.values() if d.proven and now - d.last_answer_at < timeout_s]
    if not alive:
        raise TransferFailed(None, "no other voter answers")
    return max(alive, key=lambda d: (d.match_index, d.last_answer_at, d.peer)).peer


class DiskWatch:
    """Measures for how long entries have waited to become durable without any progress."""

    __slots__ = ("_durable", "_limit_s", "_since")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._durable = -1
        self._since: float | None = None

    def observe(self, last_index: int, durable: int, now: float) -> None:
        if durable >= last_index:
            self._since = None
        elif self._since is None or durable != self._durable:
            self._since = now
        self._durable = durable

    def stalled(self, now: float) -> bool:
        return self._since is not None and now - self._since >= self._limit_s


class Handover:
    """The running transfer, and the reasons to start one: an operator, a preference, a bad disk."""

    __slots__ = ("_config", "_preferred", "_state", "_view", "disk", "transfer")

    def __init__(self, shared: SharedParts) -> None:
        config = shared.config
        self._config = config
        self._state = shared.state
        self._view = shared.view
        self.disk = DiskWatch(config.election_timeout_s)
        self._preferred = PreferredLeader(config.preferred_leader, config.election_timeout_s)
        self.transfer: LeaderTransfer | None = None

    def prefer(self, name: str | None) -> None:
        if name != self._preferred.name:
            self._preferred = PreferredLeader(name, self._config.election_timeout_s)

    def observe(self, now: float) -> None:
        """Watch the disk and the preferred leader; call this in any role."""
        self.disk.observe(self._view.last_index, self._state.durable, now)
        if self._preferred.name is not None:
            self._preferred.observe(self._state.leader, now)

    def disk_stalled(self, now: float) -> bool:
        """Return whether entries wait and none has become durable here for an election timeout."""
        return self.disk.stalled(now)

    def begin(
        self, target: str | None, dispatchers: Dispatchers, now: float
    ) -> LeaderTransfer | None:
        """Begin to hand leadership to a voter: `target`, or (None) the one with the longest log.

        A running transfer to the same target goes on; one to another target is given up. If the
        target is this member, a running transfer is given up and the result is None, as in etcd.

        Raises NotLeader, or TransferFailed if no other voter can take over.
        """
        if self._state.role is not Role.LEADER:
            raise NotLeader(self._state.leader, self._state.term)
        if target == self._state.self_id:
            self.give_up("the leader was told to stay")
            return None
        timeout_s = self._config.election_timeout_s
        chosen = choose_target(target, dispatchers, now, timeout_s)
        if self.transfer is None or self.transfer.target != chosen:
            self.give_up(f"leadership was to go to {chosen} instead")
            self.transfer = LeaderTransfer(chosen, self._view.last_index, now + timeout_s)
            self._state.agenda.due |= TICK | REPLICATE
        return self.transfer

    def give_up(self, reason: str) -> None:
        if self.transfer is not None:
            self.transfer.end = reason
            self.transfer = None
            self._state.agenda.due |= TELL

    def tick(self, dispatchers: Dispatchers, serves: bool, now: float) -> None:
        """Give up a hopeless transfer, or begin one to the preferred leader. `serves` says whether
        this leader has committed in its own term.
        """
        if self.transfer is not None:
            if (
                reason := self.transfer.hopeless(self._state.membership.voting_members, now)
            ) is not None:
                self.give_up(reason)
            return
        preferred = dispatchers.get(self._preferred.name or "")
        if preferred is None:
            return
        healthy = (
            serves
            and preferred.proven
            and now - preferred.last_answer_at < self._config.election_timeout_s / 2
            and self._view.last_index - preferred.match_index <= NEARLY_CAUGHT_UP_ENTRIES
        )
        if self._preferred.due(healthy, now):
            self.begin(preferred.peer, dispatchers, now)

    def due_target(self, dispatchers: Dispatchers, now: float) -> str | None:
        """Return the target of the transfer if it must be told now to stand."""
        transfer = self.transfer
        if transfer is None or transfer.target not in dispatchers:
            return None
        match_index = dispatchers[transfer.target].match_index
        repeat_s = self._config.heartbeat_interval_s
        return transfer.target if transfer.must_tell(match_index, now, repeat_s) else None

    def next_deadline(self, dispatchers: Dispatchers) -> float:
        """Return when a running transfer ends, or its target must be told again to stand."""
        transfer = self.transfer
        if transfer is None:
            return float("inf")
        target = dispatchers.get(transfer.target)
        if target is None or target.match_index < transfer.last_index:
            return transfer.deadline
        return min(transfer.tell_at, transfer.deadline)

    def successor(self, dispatchers: Dispatchers, now: float) -> str | None:
        """Return the other voter with the longest log, if any voter answers."""
        try:
            return choose_target(None, dispatchers, now, self._config.election_timeout_s)
        except TransferFailed:
            return None
