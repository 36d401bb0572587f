"""Consumer groups."""

from broker.groups.processor import GroupProcessor
from broker.groups.state import GROUPS
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = GroupProcessor(parts)
    groups = parts.state[GROUPS]
    return Service(
        handlers={
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Handler(processor.put_group),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Handler(processor.put_groups),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: Handler(processor.delete_group),
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Handler(processor.forbid),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Handler(processor.group_config),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Handler(processor.all_groups),
        },
        figures=lambda: {"groups": str(len(groups.configs))},
    )
