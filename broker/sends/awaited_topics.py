"""Messages that wait for their topic.

A send to a missing topic waits until the topic is in the log and the name servers know it, so that
a client that was told "stored" can find the route.
"""

from itertools import chain
from typing import Final

from broker.errors import RequestRefused
from broker.log.one_by_one import call
from broker.sends.pending_messages import PendingMessages
from broker.sends.sends import SENDS
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.topics.changes import TOPIC_CHANGES
from broker.topics.names import created_by_send
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import TopicConfig
from remoting.message.topic_names import TEMPLATE_TOPIC


class AwaitedTopics:
    """Creates topics for waiting messages."""

    def __init__(self, parts: Parts) -> None:
        self._topics = parts.state[TOPICS]
        self._sends = parts[SENDS]
        self._changes = parts[TOPIC_CHANGES]
        self._shares = parts[USER_SHARES]
        self._limits = parts.config.limits
        self._settings = parts[SETTINGS]
        self._waiting: dict[str, list[PendingMessages]] = {}
        self._waiting_messages = 0
        self._waiting_bytes = 0

    def topic_for(self, topic: str, default_topic: str, asked_queues: int) -> TopicConfig:
        """Return the topic of a message as it is, or as the message would create it.

        Raises RequestRefused: (17) it does not exist and the message may not create it, or it is
        being deleted; (2) there are too many topics.
        """
        if self._changes.is_deleting(topic):
            raise RequestRefused.no_topic(f"topic {topic} is being deleted: wait, then create")
        config = self._topics.configs.get(topic) or self._changes.creating(topic)
        if config is not None:
            return config
        template = self._topics.configs.get(default_topic or TEMPLATE_TOPIC)
        if not self._settings.now.auto_create_topics or template is None:
            raise RequestRefused.no_topic(
                f"topic[{topic}] not exist, apply first please: create it with an admin tool"
            )
        config = created_by_send(topic, template, asked_queues)
        self._changes.check_room()
        return config

    def send_when_created(
        self, config: TopicConfig, send: PendingMessages, user: str | None = None
    ) -> None:
        """Send messages once a topic exists, usually their own, and create it if necessary.

        Raises RequestRefused (2): too many messages wait already, or `user` makes too many topics.
        """
        topic = config.topic
        if topic in self._topics.configs and topic not in self._waiting:
            self._sends.add(send)
            return
        limits = self._limits
        if (
            self._waiting_messages + len(send.records) > limits.max_waiting_sends
            or self._waiting_bytes + send.size > limits.max_waiting_send_bytes
        ):
            raise RequestRefused.busy(
                f"[OVERLOAD]{self._waiting_messages} messages wait for their topics: send again"
            )
        waiting = self._waiting.get(topic)
        if waiting is None:
            self._shares.make(user)
        self._waiting_messages += len(send.records)
        self._waiting_bytes += send.size
        if waiting is not None:
            waiting.append(send)
            return
        self._waiting[topic] = [send]
        self._changes.create(config, lambda refusal: self._release(topic, refusal))

    def make(self, config: TopicConfig) -> None:
        """Create a topic for which no message waits, unless its creation is in flight."""
        topic = config.topic
        if topic not in self._topics.configs and topic not in self._waiting:
            self._waiting[topic] = []
            self._changes.create(config, lambda refusal: self._release(topic, refusal))

    def take_waiting(self) -> list[PendingMessages]:
        """Take all waiting messages, for the caller to refuse: this member no longer leads."""
        waiting, self._waiting = self._waiting, {}
        self._waiting_messages = self._waiting_bytes = 0
        return list(chain.from_iterable(waiting.values()))

    def _release(self, topic: str, refusal: RequestRefused | None) -> None:
        waiting = self._waiting.pop(topic, None)
        if waiting is None:
            return  # the term ended meanwhile, and they were refused
        config = self._topics.configs.get(topic)
        for send in waiting:
            self._waiting_messages -= len(send.records)
            self._waiting_bytes -= send.size
            try:
                if refusal is not None:
                    raise refusal
                # A message may be stored in another topic first, such as a delayed one.
                is_its_own = send.topic == topic
                if config is None or (is_its_own and send.queue_id >= config.write_queue_count):
                    # Another request created or deleted it at the same moment.
                    raise RequestRefused.no_topic(f"topic {topic} was changed: send again")
                self._sends.add(send)
            except RequestRefused as error:
                call("refusing a send", send.refuse, error)
        self._sends.flush()


AWAITED_TOPICS: Final = Shared("awaited topics", AwaitedTopics)
