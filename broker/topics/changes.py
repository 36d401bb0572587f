"""Creates, changes and deletes topics through the log."""

from collections.abc import Sequence
from typing import Final

from broker.errors import EntryPassedOver, NeverStored, RequestRefused
from broker.formats.state import FORMATS
from broker.log.entry import INCARNATIONS_VERSION
from broker.log.submissions import Then, submit_commands
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.topics.attributes import TOPIC_ATTRIBUTES, check_attributes
from broker.topics.commands import DeleteTopic, PutTopic
from broker.topics.names import check_topic_config
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import TopicConfig


class TopicChanges:
    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._formats = parts.state[FORMATS]
        self._log = parts.log
        self._settings = parts[SETTINGS]
        self._wall_clock_ms = parts.wall_clock_ms
        self._announce = parts.announce
        self._creating: dict[str, TopicConfig] = {}
        self._deleting: set[str] = set()

    def is_deleting(self, topic: str) -> bool:
        return topic in self._deleting

    def is_same(self, topic: str, since: int) -> bool:
        """Return whether the topic of this name already existed at a position of the log, where a
        message was stored for it that is to be delivered now.

        Raises:
            RequestRefused (2): it is being deleted, and may exist again once that is applied: ask
                then.
        """
        if topic in self._deleting:
            raise RequestRefused.busy(f"topic {topic:.127} is being deleted")
        return self._topics.existed(topic, since)

    def creating(self, topic: str) -> TopicConfig | None:
        return self._creating.get(topic)

    def create(self, config: TopicConfig, then: Then) -> None:
        """Create a topic unless it exists. `then` is called when the name servers know it, or with
        NeverStored (2) if there are too many topics. Callers that can refuse a request call
        `check_room` first.
        """
        topic = config.topic
        self._creating[topic] = config

        def created(refusal: RequestRefused | None) -> None:
            self._creating.pop(topic, None)
            if isinstance(refusal, EntryPassedOver):
                refusal = NeverStored.busy(self._full())
            then(refusal)

        self._change([self.command(config, only_if_absent=True)], created)

    def put_topic(self, config: TopicConfig, then: Then) -> None:
        """Create or change a topic; `then` is called when the name servers know it.

        Raises RequestRefused: the configuration is invalid, or there are too many topics.
        """
        self.put_topics([config], then)

    def put_topics(self, configs: Sequence[TopicConfig], then: Then) -> None:
        """Create or change topics by adjacent entries.

        Raises RequestRefused: a configuration is invalid, or there are too many topics. Then
        nothing changes.
        """
        for config in configs:
            check_topic_config(config)
            check_attributes(f"topic {config.topic}", config.attributes, TOPIC_ATTRIBUTES)
        names = {config.topic for config in configs}
        self.check_room(len(names - self._topics.configs.keys()))
        self._change([self.command(config) for config in configs], then)

    def delete_topic(self, topic: str, then: Then) -> None:
        """Delete a topic with its consume queues; sends to it are refused from now on."""
        self._deleting.add(topic)

        def deleted(refusal: RequestRefused | None) -> None:
            self._deleting.discard(topic)
            then(refusal)

        deletion = DeleteTopic(
            topic,
            self._wall_clock_ms(),
            with_locks=True,
            keeps_ends=self._formats.format_version >= INCARNATIONS_VERSION,
        )
        self._change([deletion], deleted)

    def command(self, config: TopicConfig, *, only_if_absent: bool = False) -> PutTopic:
        limit = self._settings.now.limits.max_topics
        return PutTopic(config, self._wall_clock_ms(), only_if_absent, limit)

    def check_room(self, new: int = 1) -> None:
        """Raise RequestRefused (2) if there are too many topics for `new` more."""
        topics = len(self._topics.configs) + len(self._creating)
        if new and topics + new > self._settings.now.limits.max_topics:
            raise RequestRefused.busy(self._full())

    def _full(self) -> str:
        count = len(self._topics.configs) + len(self._creating)
        return f"there are {count} topics already: delete one first, or raise dledgerMaxTopics"

    def _change(self, commands: Sequence[PutTopic | DeleteTopic], then: Then) -> None:
        """Append commands; call `then` when they are applied and the name servers know."""

        def changed(refusal: RequestRefused | None) -> None:
            if refusal is None:
                self._announce(lambda: then(None))
            else:
                then(refusal)

        submit_commands(self._log, commands, changed)


TOPIC_CHANGES: Final = Shared("topic changes", TopicChanges)
