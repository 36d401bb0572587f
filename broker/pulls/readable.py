"""Whether a group may read a topic."""

from typing import Final

from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.groups.state import GROUPS
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.topics.names import is_system_group
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import PERMISSION_READ, TopicConfig


class Readable:
    """Checks the settings of the broker, of topics and of groups."""

    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._consumers = parts[CONSUMERS]
        self._settings = parts[SETTINGS]

    def check(self, group: str, topic: str, queue_id: int | None) -> TopicConfig:
        """Return the topic, if the group may read it, and this queue if one is given.

        Raises RequestRefused: (16) not readable, (17) no such topic, (26) no such group, and none
        is created, (29) no such queue.
        """
        self._settings.check_readable()
        config = self._topics.configs.get(topic)
        if config is None:
            raise RequestRefused.no_topic(
                f"topic[{topic}] not exist, apply first please: send to it or create it"
            )
        if not config.permission & PERMISSION_READ:
            raise RequestRefused.forbidden(f"the topic[{topic}] pulling is forbidden")
        if queue_id is not None and not 0 <= queue_id < config.read_queue_count:
            raise RequestRefused.invalid(
                f"topic {topic} has no queue {queue_id}: refresh its route"
            )
        settings = self._groups.configs.get(group)
        if settings is None and not (
            self._settings.now.auto_create_groups or is_system_group(group)
        ):
            raise RequestRefused.no_group(
                f"subscription group [{group:.120}] does not exist: create it"
            )
        if settings is not None and not settings.consume_enable:
            raise RequestRefused.forbidden(
                f"subscription group no permission, {group}: it is switched off"
            )
        if self._groups.forbidden and (group, topic) in self._groups.forbidden:
            raise RequestRefused.forbidden(
                f"the consumer group[{group}] is forbidden for topic[{topic}]"
            )
        if (
            settings is not None
            and not settings.consume_broadcast_enable
            and self._consumers.is_broadcasting(group)
        ):
            raise RequestRefused.forbidden(
                f"the consumer group[{group}] can not consume by broadcast way: it shares"
            )
        return config


READABLE: Final = Shared("readable", Readable)
