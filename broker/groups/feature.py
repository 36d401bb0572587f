"""Consumer groups."""

from broker.groups.processor import GroupProcessor
from broker.groups.state import GROUPS
from broker.serving.needs import Action
from broker.serving.parts import Parts
from broker.serving.service import Handler, Service
from broker.topics.needs import LOOK, OPERATE, on_group
from remoting.wire.codes import RequestCode


def service(parts: Parts) -> Service:
    processor = GroupProcessor(parts)
    groups = parts.state[GROUPS]
    return Service(
        handlers={
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Handler(
                processor.put_group, processor.put_needs, is_audited=True
            ),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Handler(
                processor.put_groups, OPERATE, is_audited=True
            ),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: Handler(
                processor.delete_group, on_group(Action.DELETE, field="groupName"), is_audited=True
            ),
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Handler(
                processor.forbid, OPERATE, is_audited=True
            ),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Handler(
                processor.group_config, on_group(Action.GET, Action.SUB, field="group")
            ),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Handler(processor.all_groups, LOOK),
        },
        figures=lambda: {"groups": str(len(groups.configs))},
    )
