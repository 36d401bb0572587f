"""How long to wait after a listener failed: before its next call, and before a redelivery."""

from typing import Final

from dledger_mq.received_message import ReceivedMessage
from remoting.message.properties import REAL_TOPIC

# Fewer failures in a row may be caused by single messages. They do not pause the queue: each
# message is sent back by itself.
FAILURES_BEFORE_PAUSE: Final = 3

# A listener that fails for every message has lost something it needs, such as its database. Each
# pause doubles the one before.
FIRST_PAUSE_S: Final = 0.5

# RocketMQ's second delay level. Two calls a minute for each queue cost little, and consumption
# resumes within this time after the end of an outage.
LONGEST_PAUSE_S: Final = 30.0

# Earlier brokers of this project redeliver a message at once after it was sent back, so the
# consumer waits instead: 1 s the first time, and twice as long each time after.
FIRST_DELAY_S: Final = 1.0

# While messages wait, they count as cached and the committed offset stays behind them. Waiting as
# long as RocketMQ's brokers do (up to two hours) would stop the queue. With 16 repeats this makes
# about six minutes until the dead-letter topic.
LONGEST_DELAY_S: Final = 30.0

# 0.5 s doubled this often exceeds the longest pause and delay.
_MOST_DOUBLINGS: Final = 6


class BackOff:
    """Decides when the listener may be called with messages of one queue.

    It pauses after `FAILURES_BEFORE_PAUSE` failures in a row with different messages: one message
    that fails again and again says nothing about others. Then there is one call after each pause,
    and pauses grow, until a call succeeds. The end of a call that began before the last pause is
    ignored: it says nothing about the time since.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._last_failed = ""
        self._pauses = 0
        self._paused_at = float("-inf")
        self._resumes_at = float("-inf")

    @property
    def is_closed(self) -> bool:
        """Whether calls are paused: the listener failed repeatedly, and has not succeeded since."""
        return self._pauses > 0

    def allows(self, now: float, running: int) -> bool:
        """Return whether a call may begin, while `running` calls with this queue's messages run."""
        return not self._pauses or (now >= self._resumes_at and not running)

    def succeeded(self, began: float) -> None:
        if began > self._paused_at:
            self._failures = self._pauses = 0
            self._last_failed = ""

    def failed(self, began: float, now: float, message_id: str) -> float:
        """Record a failed call; return the seconds of the pause that begins, or 0.

        `message_id` is the id of the first message of the call.
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
    """Return how long a message of a retry topic must wait before the listener gets it.

    A broker that delayed it has put REAL_TOPIC into it; such a message need not wait again. Source:
    RocketMQ's ScheduleMessageService.
    """
    if REAL_TOPIC in message.properties:
        return 0.0
    return delay_s(message.reconsume_times)


def delay_s(failures: int) -> float:
    """Return the delay after this many failures of one message, at least 1."""
    doublings = min(max(failures, 1) - 1, _MOST_DOUBLINGS)
    return min(FIRST_DELAY_S * 2.0**doublings, LONGEST_DELAY_S)
