"""Topics that are being made or deleted, and the messages that wait for them.

A send to a topic that does not exist yet waits until the topic is in the log and the name servers
know it, so that a client that was told "stored" can find the route.
"""

from collections.abc import Callable

from broker.append_outcome import not_leader
from broker.errors import RequestRefused
from broker.group import ConsumerGroup
from broker.limits import BrokerLimits
from broker.log_changes import Then, submit_commands
from broker.log_entry import DeleteGroup, DeleteTopic, LogCommand, PutGroup, PutTopic
from broker.origin import Log
from broker.sends import PendingSend, Sends
from broker.state import BrokerState
from broker.topics import (
    TEMPLATE_TOPIC,
    check_topic_config,
    created_by_send,
    created_for_group,
    retry_topic,
)
from remoting.bodies.topic_config import TopicConfig
from remoting.wire.codes import ResponseCode

# Told when the name servers know the topics as they are now, or cannot be reached.
Announce = Callable[[Callable[[], None]], None]


class TopicChanges:
    """Makes and deletes topics and groups through the log.

    Args:
        state: the applied state.
        log: the log.
        sends: where messages go on that have waited for their topic.
        limits: how many topics and groups there may be.
        wall_clock_ms: milliseconds since 1970.
        announce: registers the topics with the name servers, then calls what it is given.
        auto_create: whether a first message makes its topic.
    """

    def __init__(
        self,
        state: BrokerState,
        log: Log,
        sends: Sends,
        limits: BrokerLimits,
        wall_clock_ms: Callable[[], int],
        announce: Announce,
        auto_create: bool = True,
    ) -> None:
        self._state = state
        self._log = log
        self._sends = sends
        self._limits = limits
        self._wall_clock_ms = wall_clock_ms
        self._announce = announce
        self._auto_create = auto_create
        self._creating: dict[str, tuple[TopicConfig, list[PendingSend]]] = {}
        self._waiting_sends = 0
        self._deleting: set[str] = set()
        self._creating_groups: dict[str, list[Then]] = {}

    def topic_for(self, topic: str, default_topic: str, asked_queues: int) -> TopicConfig:
        """The topic a message goes to: as it is, or as its first message would make it.

        Raises:
            RequestRefused (17): it does not exist and is not made by a first message, or it is
                being deleted. (2): there are too many topics.
        """
        if topic in self._deleting:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} is being deleted: wait, then create"
            )
        config = self._state.topics.get(topic)
        if config is not None:
            return config
        creating = self._creating.get(topic)
        if creating is not None:
            return creating[0]
        template = self._state.topics.get(default_topic or TEMPLATE_TOPIC)
        if not self._auto_create or template is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please: create it with an admin tool",
            )
        config = created_by_send(topic, template, asked_queues)
        self._check_room()
        return config

    def send_when_created(self, config: TopicConfig, send: PendingSend) -> None:
        """Send messages as soon as their topic is there; makes it unless it is being made.

        Raises:
            RequestRefused (2): too many messages wait already.
        """
        if config.topic in self._state.topics and config.topic not in self._creating:
            self._sends.add(send)
            return
        if self._waiting_sends + len(send.records) > self._limits.max_waiting_sends:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{self._waiting_sends} messages wait for their topics: send again",
            )
        self._waiting_sends += len(send.records)
        creating = self._creating.get(config.topic)
        if creating is not None:
            creating[1].append(send)
            return
        self._creating[config.topic] = (config, [send])
        command = self._put(config, only_if_absent=True)
        topic = config.topic
        submit_commands(self._log, [command], lambda refusal: self._created(topic, refusal))

    def put_topic(self, config: TopicConfig, then: Then) -> None:
        """Create or change a topic; `then` is called when the name servers know it too.

        Raises:
            RequestRefused: it cannot be as it is asked for, or there are too many topics.
        """
        check_topic_config(config)
        if config.topic not in self._state.topics:
            self._check_room()
        self._change([self._put(config)], then)

    def delete_topic(self, topic: str, then: Then) -> None:
        """Delete a topic with its messages' index; sends to it are refused from now on."""
        self._deleting.add(topic)

        def deleted(refusal: RequestRefused | None) -> None:
            self._deleting.discard(topic)
            self._sends.forget_topic(topic)
            then(refusal)

        self._change([DeleteTopic(topic, self._wall_clock_ms(), with_locks=True)], deleted)

    def ensure_group(self, group: str, then: Then) -> None:
        """Make a consumer group and its retry topic unless they are there; then tell.

        Raises:
            RequestRefused (2): there are too many groups.
        """
        config = self._state.groups.get(group, ConsumerGroup(group))
        retry = retry_topic(group)
        needs_topic = retry not in self._state.topics and config.retry_queue_count > 0
        if group in self._state.groups and not needs_topic:
            then(None)
            return
        waiting = self._creating_groups.get(group)
        if waiting is not None:
            waiting.append(then)
            return
        groups = len(self._state.groups) + len(self._creating_groups)
        if groups >= self._limits.max_groups:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"{groups} consumer groups: delete one first"
            )
        self._check_room()
        limit = self._limits.max_groups
        commands: list[LogCommand] = [PutGroup(config, only_if_absent=True, max_groups=limit)]
        if needs_topic:
            topic = created_for_group(retry, config.retry_queue_count)
            commands.append(self._put(topic, only_if_absent=True))
        self._creating_groups[group] = [then]

        def created(refusal: RequestRefused | None) -> None:
            for one in self._creating_groups.pop(group, []):
                one(refusal)

        submit_commands(self._log, commands, created)

    def end_term(self, broker_name: str) -> None:
        """Answer the waiting messages: this member no longer leads."""
        refusal = not_leader(broker_name)
        creating, self._creating = self._creating, {}
        self._waiting_sends = 0
        for _config, sends in creating.values():
            for send in sends:
                send.refuse(refusal)

    def put_group(self, config: ConsumerGroup, then: Then) -> None:
        """Create or change a consumer group."""
        command = PutGroup(config, max_groups=self._limits.max_groups)
        submit_commands(self._log, [command], then)

    def delete_group(self, group: str, with_offsets: bool, then: Then) -> None:
        """Delete a consumer group with its locks, and its offsets when asked to."""
        submit_commands(self._log, [DeleteGroup(group, with_offsets, with_locks=True)], then)

    def _put(self, config: TopicConfig, *, only_if_absent: bool = False) -> PutTopic:
        return PutTopic(config, self._wall_clock_ms(), only_if_absent, self._limits.max_topics)

    def _change(self, commands: list[LogCommand], then: Then) -> None:
        """Append commands; tell when they are applied and the name servers know."""

        def changed(refusal: RequestRefused | None) -> None:
            if refusal is None:
                self._announce(lambda: then(None))
            else:
                then(refusal)

        submit_commands(self._log, commands, changed)

    def _created(self, topic: str, refusal: RequestRefused | None) -> None:
        """A topic that messages wait for is in the log, or is not."""
        if refusal is None:
            self._announce(lambda: self._release(topic, None))
        else:
            self._release(topic, refusal)

    def _release(self, topic: str, refusal: RequestRefused | None) -> None:
        """Send what waited for a topic, or refuse it."""
        creating = self._creating.pop(topic, None)
        if creating is None:
            return  # the term ended meanwhile, and they were answered
        config = self._state.topics.get(topic)
        for send in creating[1]:
            self._waiting_sends -= len(send.records)
            try:
                if refusal is not None:
                    raise refusal
                if config is None or send.queue_id >= config.write_queue_count:
                    # Another request made or deleted it at the same moment.
                    raise RequestRefused(
                        ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} was changed: send again"
                    )
                self._sends.add(send)
            except RequestRefused as error:
                send.refuse(error)
        self._sends.flush()

    def _check_room(self) -> None:
        """Raises RequestRefused (2) when there are too many topics."""
        topics = len(self._state.topics) + len(self._creating)
        if topics >= self._limits.max_topics:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{topics} topics: delete one first")
