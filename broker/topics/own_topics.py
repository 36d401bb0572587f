"""RocketMQ's own topics, which exist from the first message on that a feature puts there."""

from collections.abc import Callable
from typing import Final

from broker.log.replicated_log import Log
from broker.log.state import BrokerState
from broker.log.submissions import submit_commands
from broker.serving.parts import Shared
from broker.topics.commands import PutTopic
from broker.topics.state import TOPICS
from remoting.bodies.topic_config import PERMISSION_READ_WRITE, TopicConfig


class OwnTopics:
    """Makes such topics. Clients send nothing to them, so none has to wait for its route.

    Args:
        state: the applied state.
        log: the log.
        wall_clock_ms: milliseconds since 1970.
    """

    def __init__(self, state: BrokerState, log: Log, wall_clock_ms: Callable[[], int]) -> None:
        self._topics = state[TOPICS]
        self._log = log
        self._wall_clock_ms = wall_clock_ms
        self._making: set[str] = set()

    def make(self, topic: str, queues: int = 1) -> None:
        """Put a topic into the log before what goes there next, unless it is there."""
        if topic in self._topics.configs or topic in self._making:
            return
        self._making.add(topic)
        config = TopicConfig(topic, queues, queues, PERMISSION_READ_WRITE)
        put = PutTopic(config, self._wall_clock_ms(), only_if_absent=True)
        submit_commands(self._log, [put], lambda _refusal: self._making.discard(topic))

    def begin_term(self) -> None:
        """What was on its way into the log is in it, or gone."""
        self._making.clear()


OWN_TOPICS: Final = Shared(
    "own topics", lambda parts: OwnTopics(parts.state, parts.log, parts.wall_clock_ms)
)
