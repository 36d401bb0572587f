"""One address for a group."""

import logging
from typing import Final

from broker.errors import RequestRefused
from broker.feature import Feature
from broker.log.submissions import submit_commands
from broker.relays.commands import LEAD_FROM, LeadFrom
from broker.relays.group_door import GROUP_DOOR
from broker.relays.state import LEADER_PLACE
from broker.serving.parts import Parts
from broker.serving.service import Service
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)


def _service(parts: Parts) -> Service:
    if parts.config.listen_group is None:
        return Service()
    door = parts[GROUP_DOOR]
    config = parts.config
    place = LeadFrom(config.node_id, str(config.address_for_members))

    def begin_term() -> None:
        submit_commands(parts.log, [place], told)

    def told(refusal: RequestRefused | None) -> None:
        if refusal is not None:
            _log.warning("members cannot pass clients on to this one: %s", quoted(refusal.remark))

    return Service(
        begin_term=begin_term,
        end_term=lambda _refusal: door.end_connections(),
        ending=door.begin_ending,
        has_ended=lambda: not door.relays,
        figures=lambda: {"connectionsPassedOn": str(door.relays)},
        tasks=(door.run,),
    )


FEATURE: Final = Feature(commands=(LEAD_FROM,), parts=(LEADER_PLACE,), service=_service)
