"""One address for a group."""

from broker.errors import RequestRefused
from broker.log.replicated_log import Log
from broker.log.submissions import submit_commands
from broker.relays.commands import LeadFrom
from broker.relays.group_door import GROUP_DOOR
from broker.relays.state import LEADER_PLACE, LeaderPlace
from broker.serving.parts import Parts
from broker.serving.service import Service


class LeadersPlace:
    """Proposes this member's address until the log has it, while it leads."""

    def __init__(self, log: Log, known: LeaderPlace, own: LeadFrom) -> None:
        self._log = log
        self._known = known
        self._own = own
        self._is_in_flight = False

    def begin_term(self) -> None:
        self._is_in_flight = False
        self.look()

    def look(self) -> None:
        """Propose the address unless it is known. Called on the leader, with each tick."""
        known = (self._known.node_id, self._known.address)
        if self._is_in_flight or known == (self._own.node_id, self._own.address):
            return
        self._is_in_flight = True
        submit_commands(self._log, [self._own], self._told)

    def _told(self, _refusal: RequestRefused | None) -> None:
        self._is_in_flight = False  # if it failed, the next look tries again


def service(parts: Parts) -> Service:
    if parts.config.listen_group is None:
        return Service()
    door = parts[GROUP_DOOR]
    config = parts.config
    own = LeadFrom(config.node_id, str(config.address_for_members))
    place = LeadersPlace(parts.log, parts.state[LEADER_PLACE], own)
    return Service(
        begin_term=place.begin_term,
        end_term=lambda _refusal: door.end_connections(),
        ending=door.begin_ending,
        tick=place.look,
        has_ended=lambda: not door.relays,
        figures=lambda: {"connectionsPassedOn": str(door.relays)},
        tasks=(door.run,),
    )
