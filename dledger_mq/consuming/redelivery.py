"""When a message that was sent back comes to the listener again."""

from typing import Final

from dledger_mq.received_message import ReceivedMessage
from remoting.message.properties import REAL_TOPIC

# Earlier brokers of this project deliver a message at once after it was sent back, so the consumer
# waits instead: 1 s the first time, then each time twice as long.
FIRST_DELAY_SECONDS: Final = 1.0

# While messages wait, they count as cached and the committed offset stays behind them. Waiting as
# long as RocketMQ's brokers do (up to two hours) would stop the queue. With 16 repeats this makes
# about six minutes until the dead-letter topic.
LONGEST_DELAY_SECONDS: Final = 30.0

_MOST_DOUBLINGS: Final = 5


def redelivery_delay_seconds(message: ReceivedMessage) -> float:
    """How long a message that has just come from a retry topic waits for the listener.

    A broker that delayed it names the topic in which it did; such a message need not wait again.
    Source: RocketMQ's ScheduleMessageService, which leaves REAL_TOPIC in the delivered message.

    Args:
        message: from the group's retry topic.
    """
    if REAL_TOPIC in message.properties:
        return 0.0
    return delay_seconds(message.reconsume_times)


def delay_seconds(failures: int) -> float:
    """The delay after so many failures of one message, at least one."""
    doublings = min(max(failures, 1) - 1, _MOST_DOUBLINGS)
    return min(FIRST_DELAY_SECONDS * 2.0**doublings, LONGEST_DELAY_SECONDS)
