"""The log's commands that create, change and delete topics."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from broker.log.command_layout import Added, Form, Implied, Told
from broker.log.entry import GUARDED_VERSION, INCARNATIONS_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType, Deletion
from broker.topics.settings import read_topic, topic_members
from broker.topics.state import TOPICS
from dledger import Entry
from remoting.bodies.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class PutTopic:
    """Create a topic, or change it.

    Attributes:
        only_if_absent: an existing topic is not changed.
        max_topics: no topic is created if there are as many. None before version 3: no limit.
    """

    kind: ClassVar[int] = 1

    config: Annotated[TopicConfig, Form(read_topic, topic_members), Told(("topic",))]
    at_ms: int
    only_if_absent: bool = False
    max_topics: Annotated[int | None, Added(GUARDED_VERSION)] = None


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic, its queues and the offsets that groups have committed for it.

    Attributes:
        with_locks: also delete the locks of its queues; False before version 3.
        keeps_ends: a topic created again under the name begins where this one ended; False before
            version 6: it begins with 0.
    """

    kind: ClassVar[int] = 2

    topic: str
    at_ms: int
    with_locks: Annotated[bool, Implied(GUARDED_VERSION)] = False
    keeps_ends: Annotated[bool, Implied(INCARNATIONS_VERSION)] = False


def _put(
    state: BrokerState, folded: Folded, command: PutTopic, entry: Entry
) -> EntryRefused | None:
    topics, config = state[TOPICS], command.config
    old = topics.configs.get(config.topic)
    if old == config or (command.only_if_absent and old is not None):
        return None
    limit = command.max_topics
    if old is None and limit is not None:
        if len(topics.configs) >= limit:
            return EntryRefused(f"there are {len(topics.configs)} topics: delete one first")
        topics.created_at[config.topic] = entry.pos
    if old is None:
        state.topic_made(config.topic)
    topics.configs[config.topic] = config
    topics.changed(command.at_ms)
    folded.topics_changed = True
    return None


def _delete(
    state: BrokerState, folded: Folded, command: DeleteTopic, _entry: Entry
) -> EntryRefused | None:
    topics, topic = state[TOPICS], command.topic
    if topics.configs.pop(topic, None) is None:
        return None
    topics.created_at.pop(topic, None)
    for key in [key for key in folded.arrivals if key[0] == topic]:
        del folded.arrivals[key]
    folded.deleted_topics.append(topic)
    state.topic_deleted(
        Deletion(
            topic,
            with_offsets=True,
            with_locks=command.with_locks,
            keeps_ends=command.keeps_ends,
        )
    )
    topics.changed(command.at_ms)
    folded.topics_changed = True
    return None


PUT_TOPIC: Final = CommandType(PutTopic, _put)
DELETE_TOPIC: Final = CommandType(DeleteTopic, _delete)
