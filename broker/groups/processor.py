"""Answers administrators' requests about consumer groups (200, 201, 207, 225, 352, 353).

Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.errors import RequestRefused
from broker.groups.changes import GROUP_CHANGES
from broker.groups.config import ConsumerGroup, check_group_config
from broker.groups.state import GROUPS
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.user_shares import USER_SHARES
from broker.topics.attributes import changed_attributes
from broker.topics.names import check_group_name, check_topic_name
from broker.topics.needs import group_need
from remoting.bodies.json_object import JsonObject
from remoting.bodies.pieces import pieces
from remoting.bodies.topic_config import PERMISSION_READ, DataVersion
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json

# Groups in one request (225): one append.
MAX_GROUPS_AT_ONCE: Final = 500

# A group may have JSON of some kilobytes, which is read and written again.
_GROUPS_A_STEP: Final = 16


class GroupProcessor:
    def __init__(self, parts: Parts) -> None:
        self._groups = parts.state[GROUPS]
        self._changes = parts[GROUP_CHANGES]
        self._shares = parts[USER_SHARES]

    @staticmethod
    def put_needs(command: Command) -> Sequence[Need]:
        """Need to create or change the group in the body. Raises BodyMalformed."""
        config = ConsumerGroup.from_json(JsonObject.parse("consumer group", command.body))
        return (group_need(config.group, Action.CREATE, Action.UPDATE),)

    def put_group(self, origin: Origin, command: Command) -> None:
        """Create or change a consumer group (200).

        Raises RequestRefused (29): a name, a number or an attribute is not allowed.
        """
        config = self._asked(JsonObject.parse("consumer group", command.body))
        self._changes.put_groups(
            [config], replying(origin, command), self._shares.user_of(origin, command)
        )

    def put_groups(self, origin: Origin, command: Command) -> Steps:
        """Create or change many consumer groups (225): all of them, or none.

        Raises RequestRefused: (2) too many groups, (29) a name or a number is not allowed.
        """
        body = JsonObject.parse("consumer groups", command.body)
        configs: list[ConsumerGroup] = []
        for some in pieces(body.objects("groupConfigList", MAX_GROUPS_AT_ONCE), _GROUPS_A_STEP):
            configs += map(self._asked, some)
            yield
        if not configs:
            raise RequestRefused.invalid("no group is named")
        self._changes.put_groups(
            configs, replying(origin, command), self._shares.user_of(origin, command)
        )
        return None

    def _asked(self, value: JsonObject) -> ConsumerGroup:
        """Read the configuration in a request. Raises BodyMalformed, RequestRefused (29).

        RocketMQ's tools write attributes as changes: a name with "+" or "-" before it. A name
        without either is set, so that a configuration that was read can be written.
        """
        config = ConsumerGroup.from_json(value)
        old = self._groups.configs.get(config.group)
        changes = [
            name if name.startswith("-") else f"+{name.removeprefix('+')}={text}"
            for name, text in value.object("attributes").named_texts().items()
        ]
        attributes = changed_attributes({} if old is None else old.attributes, changes)
        config = replace(config, attributes=attributes)
        check_group_config(config)
        return config

    def forbid(self, origin: Origin, command: Command) -> Command | None:
        """Answer whether a group may read a topic, after changing that if requested (353).

        Raises RequestRefused: (1) too many pairs are forbidden, (29) a bad name.
        """
        group, topic = command.name("group"), command.name("topic")
        check_group_name(group)
        check_topic_name(topic)

        def told() -> Command:
            is_readable = (group, topic) not in self._groups.forbidden
            body = {"group": group, "readable": is_readable, "topic": topic}
            return command.reply(body=compact_json(body).encode())

        if not command.fields.get("readable"):
            return told()
        is_forbidden = not command.boolean("readable")
        self._changes.forbid(group, topic, is_forbidden, replying(origin, command, told))
        return None

    def delete_group(self, origin: Origin, command: Command) -> None:
        """Delete a consumer group (207), and optionally its offsets. Raises RequestRefused (29): a
        bad name.
        """
        group = command.name("groupName")
        check_group_name(group)
        with_offsets = command.boolean("cleanOffset")
        self._changes.delete_group(group, with_offsets, replying(origin, command))

    def group_config(self, origin: Origin, command: Command) -> Command | None:
        """Return one group's configuration (352). A missing group is created if settings allow it.

        RocketMQ's proxy asks when a consumer starts, and lets it start only if the group exists.

        Raises RequestRefused: (2) there are too many groups, (26) groups are not created
        automatically, (29) a bad name.
        """
        name = command.name("group")

        def told() -> Command:
            group = self._groups.configs.get(name)
            if group is None:
                words = f"subscription group not exist, {name:.120}: it was deleted"
                return RequestRefused.no_group(words).reply_to(command)
            return command.reply(body=group.to_text().encode())

        if name in self._groups.configs:
            return told()
        check_group_name(name)
        user = self._shares.user_of(origin, command)
        self._changes.ensure_group(name, replying(origin, command, told), user)
        return None

    def all_groups(self, _origin: Origin, command: Command) -> Steps:
        table: list[str] = []
        for piece in pieces(self._groups.configs.values()):
            table += [f"{compact_json(one.group)}:{one.to_text()}" for one in piece]
            yield
        forbidden: dict[str, dict[str, JsonValue]] = {}
        for pairs in pieces(sorted(self._groups.forbidden)):
            for group, topic in pairs:
                forbidden.setdefault(group, {})[topic] = PERMISSION_READ
            yield
        body = (
            f'{{"dataVersion":{compact_json(DataVersion().to_json())},'
            f'"forbiddenTable":{compact_json(forbidden)},'
            f'"subscriptionGroupTable":{{{",".join(table)}}}}}'
        )
        return command.reply(body=body.encode())
