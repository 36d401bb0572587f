"""Makes the `Needs` of requests, by the fields that name what they are about."""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

from broker.serving.needs import Action, Kind, Need, Needs
from remoting.message.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from remoting.wire.command import Command


# Clients name topics as they like; a need takes some 300 bytes.
@lru_cache(maxsize=4096)
def topic_need(topic: str, *actions: Action) -> Need:
    """Return a need for a topic. Retry and dead letter topics are their group's: what lies there
    was sent to the group.
    """
    if topic.startswith("%"):
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if topic.startswith(prefix):
                return Need(_of_group(actions), Kind.GROUP, topic.removeprefix(prefix))
    return Need(_any_of(actions), Kind.TOPIC, topic)


# Both are bounded by the combinations that handlers name. A frozenset knows its hash.
@cache
def _any_of(actions: tuple[Action, ...]) -> frozenset[Action]:
    return frozenset(actions)


@cache
def _of_group(actions: tuple[Action, ...]) -> frozenset[Action]:
    return frozenset(Action.SUB if action is Action.PUB else action for action in actions)


def group_need(group: str, *actions: Action) -> Need:
    return Need(_any_of(actions), Kind.GROUP, group)


def cluster_need(*actions: Action) -> Need:
    return Need(_any_of(actions), Kind.CLUSTER, "")


def on_topic(*actions: Action, field: str = "topic") -> Needs:
    """Need an action on the topic that a field names."""
    return lambda command: (topic_need(command.name(field), *actions),)


def on_group(*actions: Action, field: str = "consumerGroup") -> Needs:
    """Need an action on the group that a field names."""
    return lambda command: (group_need(command.name(field), *actions),)


def on_cluster(*actions: Action) -> Needs:
    """Need an action on the cluster."""
    needs = (cluster_need(*actions),)
    return lambda _command: needs


def all_of(*several: Needs) -> Needs:
    """Need all that each of these needs."""
    return lambda command: [need for needs in several for need in needs(command)]


def on_group_and_topic(*actions: Action) -> Needs:
    """Need an action on the group and on the topic that consumers' fields name."""

    def needs(command: Command) -> Sequence[Need]:
        return (
            group_need(command.name("consumerGroup"), *actions),
            topic_need(command.name("topic"), *actions),
        )

    return needs


OPERATE: Final = on_cluster(Action.UPDATE)
LOOK: Final = on_cluster(Action.GET)
CONSUMES: Final = on_group_and_topic(Action.SUB)
READS: Final = on_topic(Action.SUB, Action.GET)
