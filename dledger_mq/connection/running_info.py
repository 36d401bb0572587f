"""A consumer's own report for brokers (221, 307), in the form that RocketMQ's tools read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from remoting.bodies.heartbeat import SubscriptionData
from remoting.bodies.message_queue import MessageQueue, encode_queue_keyed, queue_keyed_json
from remoting.wire.loose_json import compact_json


class ConsumeStatus(NamedTuple):
    """The counts of one topic.

    Attributes:
        consumed_per_second: over the last minute.
        failed_per_second: messages that the listener failed with, over the last minute.
        call_ms: the average duration of the listener's calls over the last minute.
        failed_in_hour: messages that the listener failed with in the last hour.
    """

    consumed_per_second: float
    failed_per_second: float
    call_ms: float
    failed_in_hour: int


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A consumer's state in one queue.

    Attributes:
        commit_offset: the next queue offset to consume.
        next_offset: the next queue offset to pull.
        cached_messages: pulled and not consumed.
        cached_bytes: of their bodies and properties.
        is_locked: whether an ordered consumer holds the queue.
    """

    commit_offset: int
    next_offset: int
    cached_messages: int
    cached_bytes: int
    is_locked: bool = False


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A consumer's state.

    Attributes:
        is_ordered: whether it keeps the order of each queue.
        concurrency: the most messages that it consumes at once.
        started_ms: when it was opened, since 1970.
        statuses: by topic.
    """

    nameservers: tuple[str, ...]
    is_ordered: bool
    concurrency: int
    started_ms: int
    subscriptions: tuple[SubscriptionData, ...]
    queues: Mapping[MessageQueue, QueueInfo]
    statuses: Mapping[str, ConsumeStatus] = field(default_factory=dict)


def encode_offsets(info: RunningInfo, topic: str) -> bytes:
    """Encode the next offset to consume of each queue of a topic (221); of all topics for ""."""
    pairs = [
        (queue, one.commit_offset)
        for queue, one in sorted(info.queues.items())
        if topic in ("", queue.topic)
    ]
    return encode_queue_keyed("messageQueueTable", pairs)


def encode_running_info(info: RunningInfo) -> bytes:
    """Encode RocketMQ's ConsumerRunningInfo (307), without the stacks of threads."""
    properties = {
        "PROP_CONSUMEORDERLY": "true" if info.is_ordered else "false",
        "PROP_CONSUMER_START_TIMESTAMP": str(info.started_ms),
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_NAMESERVER_ADDR": ";".join(info.nameservers),
        "PROP_THREADPOOL_CORE_SIZE": str(info.concurrency),
    }
    table = queue_keyed_json(_process_queues(info.queues))
    statuses = {
        topic: {
            "consumeFailedMsgs": one.failed_in_hour,
            "consumeFailedTPS": round(one.failed_per_second, 3),
            "consumeOKTPS": round(one.consumed_per_second, 3),
            "consumeRT": round(one.call_ms, 3),
            "pullRT": 0.0,  # a pull that waits for a message would say nothing of the network
            "pullTPS": round(one.consumed_per_second + one.failed_per_second, 3),
        }
        for topic, one in info.statuses.items()
    }
    subscriptions = compact_json([one.to_json() for one in info.subscriptions])
    return (
        f'{{"mqTable":{table},"properties":{compact_json(properties)},"statusTable":'
        f"{compact_json(statuses)},"
        f'"subscriptionSet":{subscriptions},"userConsumerInfo":{{}}}}'
    ).encode()


def _process_queues(
    queues: Mapping[MessageQueue, QueueInfo],
) -> Iterable[tuple[MessageQueue, object]]:
    for queue, one in sorted(queues.items()):
        first, last = (one.commit_offset, one.next_offset - 1) if one.cached_messages else (0, 0)
        yield (
            queue,
            {
                "cachedMsgCount": one.cached_messages,
                "cachedMsgMaxOffset": last,
                "cachedMsgMinOffset": first,
                "cachedMsgSizeInMiB": one.cached_bytes // (1024 * 1024),
                "commitOffset": one.commit_offset,
                "droped": False,  # as RocketMQ spells it
                "locked": one.is_locked,
            },
        )
