"""The options of a consumer that pops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.renamed import renamed_fields
from dledger_mq.argument_checks import check_kind, check_number
from dledger_mq.listener import SLOW_CALL_S
from remoting.bodies.pop import MAX_INVISIBLE_MS

# The most messages of a pop, at RocketMQ's brokers and at ours.
MOST_OF_A_POP: Final = 32

# RocketMQ's pauses before the redelivery of a popped message that failed once, twice...
RETRY_S: Final = (
    *(10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200),
)

# With the shortest time a message is renewed every half second, which is a burden. The longest is
# RocketMQ's.
_INVISIBLE_S: Final = (1.0, MAX_INVISIBLE_MS / 1000)

_RANGES: Final[dict[str, tuple[float, float]]] = {
    "concurrency": (1, 1000),
    "batch_size": (1, MOST_OF_A_POP),
    "pop_batch": (1, MOST_OF_A_POP),
    "pops_at_once": (1, 64),
    "max_held_messages": (1, 10_000),
    "invisible_s": _INVISIBLE_S,
    "longest_call_s": (1, 12 * 3600.0),
    "suspend_s": (0.01, 30),
}


@renamed_fields(
    close_timeout_seconds="close_timeout_s",
    invisible_seconds="invisible_s",
    longest_call_seconds="longest_call_s",
    retry_seconds="retry_s",
    slow_call_seconds="slow_call_s",
    suspend_seconds="suspend_s",
)
@dataclass(frozen=True, slots=True)
class PopOptions:
    """The options of a consumer that pops; the defaults are RocketMQ's where it has one.

    Attributes:
        concurrency: how many listeners run at once.
        batch_size: the most messages that a listener gets.
        pop_batch: how many messages a pop asks for; 1 to 32.
        pops_at_once: how many pops a group of brokers is asked at once for a topic. Those that find
            nothing wait there.
        max_held_messages: the most messages of this consumer: waiting for the listener, with it, or
            not acknowledged yet. With this number it asks for no more.
        invisible_s: how long a message is this consumer's; 1 s to 12 h. It is renewed at half
            of that time, so it may be shorter than a call of the listener; the messages of a
            consumer that dies are kept from the others for so long.
        longest_call_s: a message is not renewed for longer than this: a listener that hangs
            does not keep it for ever.
        retry_s: the pauses before the redelivery of a message that failed once, twice and so
            on; the last one is for all further times.
        suspend_s: of an ordered consumer: the pause before the redelivery of a queue's
            messages when the listener failed; 0.01 to 30.
        close_timeout_s: how long the end of the block waits for listeners that run.
        slow_call_s: a call of the listener that takes longer is logged, once a minute for
            each listener.
    """

    concurrency: int = 20
    batch_size: int = 1
    pop_batch: int = MOST_OF_A_POP
    pops_at_once: int = 2
    max_held_messages: int = 512
    invisible_s: float = 60.0
    longest_call_s: float = 15 * 60.0
    retry_s: Sequence[float] = RETRY_S
    suspend_s: float = 1.0
    close_timeout_s: float = 5.0
    slow_call_s: float = SLOW_CALL_S

    def __post_init__(self) -> None:
        """Raises InvalidOptions."""
        for name, (least, most) in _RANGES.items():
            is_whole = not name.endswith("_s")
            check_number("PopOptions", name, getattr(self, name), least, most, whole=is_whole)
        for name in ("close_timeout_s", "slow_call_s"):
            check_number("PopOptions", name, getattr(self, name), 0, float("inf"))
        check_kind("PopOptions", "retry_s", self.retry_s, Sequence, "a list of seconds")
        for value in self.retry_s or (-1.0,):
            check_number("PopOptions", "retry_s", value, 0.001, _INVISIBLE_S[1])
