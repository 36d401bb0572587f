"""One address for a group."""

from broker.relays.commands import LeadFrom
from broker.relays.group_door import GROUP_DOOR
from broker.relays.leaders_place import LeadersPlace
from broker.relays.state import LEADER_PLACE
from broker.serving.parts import Parts
from broker.serving.service import Service


def service(parts: Parts) -> Service:
    """What serves clients."""
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
