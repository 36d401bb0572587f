"""Who leads, as one node knows it, and who wants to hear when that changes."""

from __future__ import annotations

import logging

from dledger.core.member_state import Role
from dledger.core.replica import Replica
from dledger.status import REMOVED, RoleChange, role_name
from dledger.waits.iterators import RoleChanges
from dledger.waits.progress import Progress

logger = logging.getLogger(__name__)


class LeadershipWatch:
    """One node's. To be asked to look after every turn, and after everything that is applied."""

    def __init__(self, group: str, replica: Replica) -> None:
        self._group = group
        self._replica = replica
        self._watchers = Progress()
        self._seen: tuple[object, ...] = ()  # what the role was made of
        self._role = self._role_now()

    @property
    def role(self) -> RoleChange:
        """Who leads now."""
        return self._role

    @property
    def is_ready_leader(self) -> bool:
        """Whether this node leads and has applied an entry of its own term: it may serve."""
        replica = self._replica
        return (
            replica.state.role is Role.LEADER
            and replica.view.term_at(replica.state.applied) == replica.state.term
        )

    def changes(self) -> RoleChanges:
        """The present role, and then each change."""
        return RoleChanges(lambda: self._role, self._watchers)

    def close(self) -> None:
        """The node stops: tell every watcher."""
        self._watchers.close()

    def look(self) -> None:
        """Tell those who watch, if something has changed."""
        state = self._replica.state
        configuration = state.membership.configuration
        seen = (state.role, state.term, state.leader, configuration, self.is_ready_leader)
        if seen == self._seen:
            return
        self._seen = seen
        role = self._role_now()
        if role != self._role:
            if role.role == REMOVED and self._role.role != REMOVED:
                logger.warning("this node belongs to group %s no more", self._group)
            self._role = role
            self._watchers.made()

    def _role_now(self) -> RoleChange:
        state = self._replica.state
        return RoleChange(role_name(state), state.term, state.leader, self.is_ready_leader)
