"""What a steady sender and a steady consumer told, as gaps, losses and repeats."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Delivery(NamedTuple):
    """A message that a consumer took: its key, when, and where in the topic it stands."""

    key: str
    at_ms: int
    place: str


class Gap(NamedTuple):
    """The longest time without an event; open if the measurement ended first."""

    ms: int
    is_open: bool = False


@dataclass(frozen=True)
class Tally:
    """What happened to one client under one fault.

    Attributes:
        send_gap: the longest time without an acknowledged send.
        consume_gap: the longest time without a consumed message.
        acknowledged: how many messages were.
        refused: how many attempts to send failed, each of which the application repeated.
        lost: acknowledged messages that were never consumed.
        stored_twice: further copies of a message, which repeated sends made.
        delivered_twice: further deliveries of one stored copy.
    """

    send_gap: Gap
    consume_gap: Gap
    acknowledged: int
    refused: int
    lost: int
    stored_twice: int
    delivered_twice: int


def tally(sent: list[str], taken: list[str], fault_ms: int, end_ms: int) -> Tally:
    """Read the lines that a sender ("acked", "failed") and a consumer ("took") printed.

    Args:
        sent: the sender's lines; others of it are passed over.
        taken: the consumer's.
        fault_ms: when the fault began: earlier gaps do not count.
        end_ms: when the sender was stopped: a gap that is open then ends there.

    All times are milliseconds of one clock.
    """
    acknowledged = {words[1]: int(words[2]) for words in _lines(sent, "acked", 3)}
    deliveries = [Delivery(words[1], int(words[2]), words[3]) for words in _lines(taken, "took", 4)]
    copies = Counter((delivery.key, delivery.place) for delivery in deliveries)
    keys = {key for key, _ in copies}
    return Tally(
        send_gap=longest_gap(list(acknowledged.values()), fault_ms, end_ms),
        consume_gap=longest_gap([one.at_ms for one in deliveries], fault_ms, end_ms),
        acknowledged=len(acknowledged),
        refused=len(_lines(sent, "failed", 3)),
        lost=len(acknowledged.keys() - keys),
        stored_twice=len(copies) - len(keys),
        delivered_twice=len(deliveries) - len(copies),
    )


def longest_gap(times_ms: list[int], begin_ms: int, end_ms: int) -> Gap:
    """The longest time between two neighbours that reaches into the span.

    What happened before `begin_ms` only says since when nothing has happened; if nothing happens
    up to `end_ms`, the gap is open and ends there. A later event ends a gap that began before.
    """
    before = [at for at in times_ms if at <= begin_ms]
    times = [max(before, default=begin_ms), *sorted(at for at in times_ms if at > begin_ms)]
    gaps = [Gap(later - at) for at, later in pairwise(times) if at < end_ms]
    if times[-1] < end_ms:
        gaps.append(Gap(end_ms - times[-1], is_open=True))
    return max(gaps, default=Gap(0))


def _lines(lines: list[str], verb: str, least_words: int) -> list[list[str]]:
    """The words of the lines that begin with a verb."""
    found = [line.split() for line in lines if line.startswith(f"{verb} ")]
    return [words for words in found if len(words) >= least_words]
