"""The reasons for a leader to hand over, and the running transfer."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState, Role
from dledger.core.replica_config import ReplicaConfig
from dledger.core.transfer.leader_transfer import LeaderTransfer, choose_target
from dledger.core.transfer.preferred_leader import PreferredLeader
from dledger.errors import NotLeader, TransferFailed

# A preferred leader that lacks no more counts as caught up: the transfer waits for the rest.
NEARLY_CAUGHT_UP_ENTRIES = 1_000

Dispatchers = Mapping[str, EntryDispatcher]


class DiskWatch:
    """Measures for how long entries have waited to become durable without any progress."""

    __slots__ = ("_durable", "_limit_s", "_since")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._durable = -1
        self._since: float | None = None

    def observe(self, last_index: int, durable: int, now: float) -> None:
        """Note the ends of the log and of its durable part at `now`."""
        if durable >= last_index:
            self._since = None
        elif self._since is None or durable != self._durable:
            self._since = now
        self._durable = durable

    def stalled(self, now: float) -> bool:
        """Whether entries wait and none has become durable for `limit_s`."""
        return self._since is not None and now - self._since >= self._limit_s


class Handover:
    """The running transfer, and the reasons to start one: an operator, a preference, a bad disk."""

    __slots__ = ("_config", "_disk", "_preferred", "_state", "_view", "transfer")

    def __init__(self, config: ReplicaConfig, state: MemberState, view: LedgerView) -> None:
        self._config = config
        self._state = state
        self._view = view
        self._disk = DiskWatch(config.election_timeout_s)
        self._preferred = PreferredLeader(config.preferred_leader, config.election_timeout_s)
        self.transfer: LeaderTransfer | None = None

    def prefer(self, name: str | None) -> None:
        """Prefer that member as leader from now on; None: no preference."""
        if name != self._preferred.name:
            self._preferred = PreferredLeader(name, self._config.election_timeout_s)

    def observe(self, now: float) -> None:
        """Watch the disk and the preferred leader; call this in any role."""
        self._disk.observe(self._view.last_index, self._state.durable, now)
        if self._preferred.name is not None:
            self._preferred.observe(self._state.leader, now)

    def disk_stalled(self, now: float) -> bool:
        """Whether entries wait and none has become durable here for an election timeout."""
        return self._disk.stalled(now)

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
        return self.transfer

    def give_up(self, reason: str) -> None:
        """End the running transfer, if there is one."""
        if self.transfer is not None:
            self.transfer.end = reason
            self.transfer = None

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

    def tell(self, dispatchers: Dispatchers, now: float) -> str | None:
        """Return the member to tell now to stand, if there is one."""
        transfer = self.transfer
        if transfer is None or transfer.target not in dispatchers:
            return None
        match_index = dispatchers[transfer.target].match_index
        repeat_s = self._config.heartbeat_interval_s
        return transfer.target if transfer.must_tell(match_index, now, repeat_s) else None

    def successor(self, dispatchers: Dispatchers, now: float) -> str | None:
        """The other voter with the longest log, if any answers."""
        try:
            return choose_target(None, dispatchers, now, self._config.election_timeout_s)
        except TransferFailed:
            return None
