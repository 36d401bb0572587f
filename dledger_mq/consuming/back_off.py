"""How long a listener is left alone after failures: with a queue, and with a message sent back."""

from typing import Final

from dledger_mq.received_message import ReceivedMessage
from remoting.message.properties import REAL_TOPIC

# Fewer failures in a row may be the fault of single messages. They cost the queue no pause: each
# message is sent back by itself.
FAILURES_BEFORE_PAUSE: Final = 3

# A listener that fails for every message has lost something it needs, such as its database. Each
# pause is twice as long as the one before.
FIRST_PAUSE_S: Final = 0.5

# RocketMQ's second delay level. Two calls a minute and queue burden nothing, and consumption goes
# on at most this long after the end of an outage.
LONGEST_PAUSE_S: Final = 30.0

# Earlier brokers of this project deliver a message at once after it was sent back, so the consumer
# waits instead: 1 s the first time, then each time twice as long.
FIRST_DELAY_S: Final = 1.0

# While messages wait, they count as cached and the committed offset stays behind them. Waiting as
# long as RocketMQ's brokers do (up to two hours) would stop the queue. With 16 repeats this makes
# about six minutes until the dead-letter topic.
LONGEST_DELAY_S: Final = 30.0

# 0.5 s doubled this often is longer than the longest pause and delay, so larger powers are not
# needed.
_MOST_DOUBLINGS: Final = 6


class BackOff:
    """Decides when the listener may be called with messages of one queue.

    It closes after `FAILURES_BEFORE_PAUSE` failures in a row, when one message after the other
    failed: a single message that fails again and again says nothing about others. Then there is one
    call after each pause, and pauses grow, until a call succeeds. A call that began before the last
    pause says nothing about the time after it, so its end is passed over.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._last_failed = ""
        self._pauses = 0
        self._paused_at = float("-inf")
        self._resumes_at = float("-inf")

    @property
    def is_closed(self) -> bool:
        """Whether the listener failed again and again, and has not succeeded since."""
        return self._pauses > 0

    def allows(self, now: float, running: int) -> bool:
        """Whether a call may begin.

        Args:
            now: seconds, on the clock of all other arguments.
            running: calls with messages of this queue that have not ended.
        """
        return not self._pauses or (now >= self._resumes_at and not running)

    def succeeded(self, began: float) -> None:
        """A call that began at `began` succeeded."""
        if began > self._paused_at:
            self._failures = self._pauses = 0
            self._last_failed = ""

    def failed(self, began: float, now: float, message_id: str) -> float:
        """A call failed; returns the seconds of the pause that begins, or 0.

        Args:
            began: when the call began.
            now: when it failed.
            message_id: the id of its first message.
        """
        if began <= self._paused_at:
            return 0.0
        if message_id != self._last_failed:
            self._last_failed = message_id
            self._failures += 1
        if self._failures < FAILURES_BEFORE_PAUSE:
            return 0.0
        doublings = min(self._pauses, _MOST_DOUBLINGS)
        back_off_s = min(FIRST_PAUSE_S * 2.0**doublings, LONGEST_PAUSE_S)
        self._pauses += 1
        self._paused_at = now
        self._resumes_at = now + back_off_s
        return back_off_s


def redelivery_delay_s(message: ReceivedMessage) -> float:
    """How long a message that has just come from a retry topic waits for the listener.

    A broker that delayed it names the topic in which it did; such a message need not wait again.
    Source: RocketMQ's ScheduleMessageService, which leaves REAL_TOPIC in the delivered message.

    Args:
        message: from the group's retry topic.
    """
    if REAL_TOPIC in message.properties:
        return 0.0
    return delay_s(message.reconsume_times)


def delay_s(failures: int) -> float:
    """The delay after so many failures of one message, at least one."""
    doublings = min(max(failures, 1) - 1, _MOST_DOUBLINGS)
    return min(FIRST_DELAY_S * 2.0**doublings, LONGEST_DELAY_S)
