"""Answers administrators' requests about consumer groups (200, 201, 207, 352).

Source: RocketMQ's AdminBrokerProcessor.
"""

from typing import Final

from broker.errors import RequestRefused
from broker.groups.changes import GroupChanges
from broker.groups.config import ConsumerGroup
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

# The most deliveries a group may ask for: beyond it, "for ever" was meant.
_MAX_RETRY_TIMES: Final = 1_000_000


class GroupProcessor:
    """Makes, deletes and shows consumer groups."""

    def __init__(self, state: BrokerState, changes: GroupChanges) -> None:
        self._groups = state[GROUPS]
        self._changes = changes

    def put_group(self, origin: Origin, command: Command) -> None:
        """Create or change a consumer group (200).

        Raises:
            BodyMalformed: it cannot be read.
            RequestRefused (29): a name or a number that is not allowed.
        """
        config = ConsumerGroup.from_json(JsonObject.parse("consumer group", command.body))
        check_group_name(config.group)
        if not 0 <= config.retry_queue_count <= 16:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{config.retry_queue_count} retry queues: give 0 to 16",
            )
        if not 0 <= config.retry_max_times <= _MAX_RETRY_TIMES:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{config.retry_max_times} retries: give 0 to {_MAX_RETRY_TIMES}",
            )
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
