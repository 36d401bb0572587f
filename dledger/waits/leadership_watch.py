"""The group's leader, as one node knows it, and the tasks that wait for a change."""

from __future__ import annotations

import logging
from dataclasses import replace

from dledger.core.member_state import Role
from dledger.core.replica import Replica
from dledger.node_end import NodeEnd
from dledger.status import REMOVED, RoleChange, role_name
from dledger.waits.iterators import RoleChanges
from dledger.waits.progress import Progress

logger = logging.getLogger(__name__)


class LeadershipWatch:
    """The watch of one node. The node calls `look` after every change and every apply.

    Attributes:
        may_serve: whether the state machine can serve; the node sets it before `look`.
    """

    def __init__(self, group: str, replica: Replica) -> None:
        self.may_serve = True
        self._group = group
        self._replica = replica
        self._watchers = Progress()
        self._seen: tuple[object, ...] = ()  # the facts behind the last role
        self._applied_in: int | None = None  # the last term that it led and applied an entry of
        self._role = self._role_now()
        if self._role.role == REMOVED:
            self._say_removed()

    @property
    def role(self) -> RoleChange:
        return self._role

    @property
    def is_ready_leader(self) -> bool:
        """Whether this node leads and has applied an entry of its own term, so that it may
        serve.
        """
        state = self._replica.state
        if state.role is not Role.LEADER or not self.may_serve:
            return False
        if state.term != self._applied_in:  # checked once a term: later entries have this term too
            if self._replica.view.term_at(state.applied) != state.term:
                return False
            self._applied_in = state.term
        return True

    def changes(self) -> RoleChanges:
        return RoleChanges(lambda: self._role, self._watchers)

    def close(self, end: NodeEnd) -> None:
        """Raise NodeClosing in every watcher: the node stops, and serves no more."""
        self.may_serve = False
        self._role = replace(self._role, ready=False)
        self._watchers.close(end)

    def look(self) -> None:
        state = self._replica.state
        configuration = state.membership.configuration
        seen = (state.role, state.term, state.leader, configuration, self.is_ready_leader)
        if seen == self._seen:
            return
        self._seen = seen
        role = self._role_now()
        if role != self._role:
            if role.role == REMOVED and self._role.role != REMOVED:
                self._say_removed()
            self._role = role
            self._watchers.made()

    def _say_removed(self) -> None:
        logger.warning("this node no longer belongs to group %s", self._group)

    def _role_now(self) -> RoleChange:
        state = self._replica.state
        return RoleChange(role_name(state), state.term, state.leader, self.is_ready_leader)
