"""A leader says in the log where it serves, so that the others can pass clients on to it."""

from broker.errors import RequestRefused
from broker.log.replicated_log import Log
from broker.log.submissions import submit_commands
from broker.relays.commands import LeadFrom
from broker.relays.state import LeaderPlace


class LeadersPlace:
    """Proposes the place of this member while it leads, until the log has it.

    Args:
        log: the log.
        known: the place that the log has.
        own: this member's.
    """

    def __init__(self, log: Log, known: LeaderPlace, own: LeadFrom) -> None:
        self._log = log
        self._known = known
        self._own = own
        self._is_on_its_way = False

    def begin_term(self) -> None:
        """This member leads a new term: what was on its way is applied or gone."""
        self._is_on_its_way = False
        self.look()

    def look(self) -> None:
        """Propose it unless it is known. Called on the leader, again and again."""
        known = (self._known.node_id, self._known.address)
        if self._is_on_its_way or known == (self._own.node_id, self._own.address):
            return
        self._is_on_its_way = True
        submit_commands(self._log, [self._own], self._told)

    def _told(self, _refusal: RequestRefused | None) -> None:
        self._is_on_its_way = False  # if it failed, the next look tries again
