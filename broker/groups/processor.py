"""Answers administrators' requests about consumer groups (200, 201, 207, 352).

Source: RocketMQ's AdminBrokerProcessor.
"""

from broker.errors import RequestRefused
from broker.groups.changes import GroupChanges
from broker.groups.config import ConsumerGroup, check_group_config
from broker.groups.state import GROUPS
from broker.log.state import BrokerState
from broker.serving.origin import Origin
from broker.serving.replying import replying
from broker.topics.names import check_group_name
from remoting.bodies.json_object import JsonObject
from remoting.bodies.topic_config import DataVersion
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json


class GroupProcessor:
    """Makes, deletes and shows consumer groups."""

    def __init__(self, state: BrokerState, changes: GroupChanges) -> None:
        self._groups = state[GROUPS]
        self._changes = changes

    def put_group(self, origin: Origin, command: Command) -> None:
        """Create or change a consumer group (200).

        Raises:
            BodyMalformed: it cannot be read.
            RequestRefused (29): a name, a number or an attribute that is not allowed.
        """
        body = JsonObject.parse("consumer group", command.body)
        for name in body.object("attributes").members:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"unsupported key {name!r:.80}: consumer groups have no attributes",
            )
        config = ConsumerGroup.from_json(body)
        check_group_config(config)
        self._changes.put_group(config, replying(origin, command))

    def delete_group(self, origin: Origin, command: Command) -> None:
        """Delete a consumer group (207), and its offsets when asked to.

        Raises:
            RequestRefused (29): a bad name.
        """
        group = command.text("groupName")
        check_group_name(group)
        with_offsets = command.boolean("cleanOffset")
        self._changes.delete_group(group, with_offsets, replying(origin, command))

    def group_config(self, _origin: Origin, command: Command) -> Command:
        """One group's configuration (352)."""
        name = command.text("group")
        group = self._groups.configs.get(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no consumer group {name:.120}"
            )
        return command.reply(body=compact_json(group.to_json()).encode())

    def all_groups(self, _origin: Origin, command: Command) -> Command:
        """Every group's configuration (201)."""
        table = {name: group.to_json() for name, group in self._groups.configs.items()}
        body = {"dataVersion": DataVersion().to_json(), "subscriptionGroupTable": table}
        return command.reply(body=compact_json(body).encode())
