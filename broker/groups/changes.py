"""Creates, changes and deletes consumer groups through the log."""

from collections.abc import Sequence
from typing import Final

from broker.errors import RequestRefused
from broker.formats.state import FORMATS
from broker.groups.commands import DeleteGroup, Forbid, PutGroup
from broker.groups.config import ConsumerGroup
from broker.groups.state import GROUPS
from broker.log.command_layout import LogCommand
from broker.log.entry import GROUP_ATTRIBUTES_VERSION
from broker.log.one_by_one import call_each
from broker.log.submissions import Then, submit_commands
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.topics.changes import TOPIC_CHANGES
from broker.topics.names import created_for_group, is_system_group, retry_topic
from broker.topics.state import TOPICS

# Pairs of group and topic that operators forbid one by one.
MAX_FORBIDDEN: Final = 20_000


class GroupChanges:
    def __init__(self, parts: Parts) -> None:
        self._groups = parts.state[GROUPS]
        self._topics = parts.state[TOPICS]
        self._formats = parts.state[FORMATS]
        self._shares = parts[USER_SHARES]
        self._log = parts.log
        self._topic_changes = parts[TOPIC_CHANGES]
        self._settings = parts[SETTINGS]
        self._creating: dict[str, list[Then]] = {}
        self._deleting: set[str] = set()

    def is_there(self, group: str) -> bool:
        """Return whether a group exists and is not being deleted. An entry for another one would
        create some of its state again.
        """
        return group in self._groups.configs and group not in self._deleting

    def ensure_group(self, group: str, then: Then, user: str | None) -> None:
        """Create a consumer group and its retry topic unless they exist; then call `then`.

        Raises RequestRefused: (2) there are too many groups, or `user` makes too many, (26) groups
        are not created automatically.
        """
        groups = self._groups.configs
        config = groups.get(group, ConsumerGroup(group))
        retry = retry_topic(group)
        needs_topic = retry not in self._topics.configs and config.retry_queue_count > 0
        if group in groups and not needs_topic:
            then(None)
            return
        waiting = self._creating.get(group)
        if waiting is not None:
            waiting.append(then)
            return
        settings = self._settings.now
        limit = settings.limits.max_groups
        if group not in groups:
            if not (settings.auto_create_groups or is_system_group(group)):
                raise RequestRefused.no_group(
                    f"subscription group not exist, {group:.120}: create it"
                )
            count = len(groups) + len(self._creating)
            if count >= limit:
                raise RequestRefused.busy(f"{count} consumer groups: delete one first")
        if needs_topic:
            self._topic_changes.check_room()
        if group not in groups:
            self._shares.make(user)
        commands: list[LogCommand] = [PutGroup(config, only_if_absent=True, max_groups=limit)]
        if needs_topic:
            topic = created_for_group(retry, config.retry_queue_count)
            commands.append(self._topic_changes.command(topic, only_if_absent=True))
        self._creating[group] = [then]

        def created(refusal: RequestRefused | None) -> None:
            waiting = self._creating.pop(group, [])
            call_each("answering a request that made a group", waiting, refusal)

        submit_commands(self._log, commands, created)

    def put_groups(self, configs: Sequence[ConsumerGroup], then: Then, user: str | None) -> None:
        """Create or change consumer groups by adjacent entries.

        Raises RequestRefused: (1) not all members read attributes of groups, (2) there are too many
        groups, or `user` makes too many. Then nothing changes.
        """
        if self._formats.format_version < GROUP_ATTRIBUTES_VERSION and any(
            config.attributes for config in configs
        ):
            raise RequestRefused.failed(
                "not all members have said that they know attributes of groups: start all of them, "
                "and upgrade those of an earlier version"
            )
        limit = self._settings.now.limits.max_groups
        groups = self._groups.configs
        new = len({config.group for config in configs} - groups.keys())
        if new and len(groups) + len(self._creating) + new > limit:
            raise RequestRefused.busy(f"there are {len(groups)} consumer groups: delete one first")
        self._shares.make(user, new)
        commands = [PutGroup(config, max_groups=limit) for config in configs]
        submit_commands(self._log, commands, then)

    def forbid(self, group: str, topic: str, is_forbidden: bool, then: Then) -> None:
        submit_commands(self._log, [Forbid(group, topic, is_forbidden, MAX_FORBIDDEN)], then)

    def delete_group(self, group: str, with_offsets: bool, then: Then) -> None:
        """Delete a consumer group with its locks, and optionally its offsets."""
        self._deleting.add(group)

        def deleted(refusal: RequestRefused | None) -> None:
            self._deleting.discard(group)
            then(refusal)

        submit_commands(self._log, [DeleteGroup(group, with_offsets, with_locks=True)], deleted)


GROUP_CHANGES: Final = Shared("group changes", GroupChanges)
