"""What a feature did while a leader was lost, judged by its journal (`java/Journal.java`).

A journal has a line for each thing that happened. Times are milliseconds of one wall clock; BEGAN
and ENDED are microseconds of a clock that does not jump.

    reader NAME                    everything must come to whoever is named
    acked KEY AT                   a send was acknowledged
    failed KEY AT WHY              an attempt to send failed; it was made again
    from KEY AT                    the message must not come earlier
    never KEY                      the message must not come
    took KEY AT PLACE READER BEGAN ENDED VERDICT COPY
                                   a listener was called with what stands at QUEUE/OFFSET; the
                                   verdict is "ok" or "again"; the copy tells apart what one send
                                   may store several times: repeats of a message, or half messages
    buried KEY PLACE               the message is a dead letter
    wrong WORDS                    a fault that the load itself saw
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from tests.clients.gap_tally import Gap, longest_gap

# Orders are checked for each account: message n belongs to account n % 4, which has one queue.
ACCOUNTS = 4

Promise = Literal["order", "permission", "last gets nothing"]


class Call(NamedTuple):
    """A call of a listener with a message."""

    key: str
    at_ms: int
    place: str
    reader: str
    began_us: int
    ended_us: int
    succeeded: bool
    copy: int


@dataclass(frozen=True)
class LossTally:
    """What happened to one feature of one client under one fault.

    Attributes:
        acknowledged: how many messages were.
        refused: how many attempts to send failed, each of which was made again.
        delivered: acknowledged messages that came, to each reader that must get everything; dead
            letters count as delivered.
        lost: those that did not come.
        stored_twice: further copies of a message, as a repeat or a dead letter as well: a client or
            an application has sent it, or given it back, again.
        delivered_twice: further deliveries of one stored copy.
        send_gap: the longest time without an acknowledged send.
        consume_gap: the longest time without a delivery.
        longest_wait_ms: from the acknowledgement of a message, or from when it is due, until it
            came and was consumed; of a dead letter, until its last call.
        faults: what must not happen, in words.
    """

    acknowledged: int
    refused: int
    delivered: int
    lost: int
    stored_twice: int
    delivered_twice: int
    send_gap: Gap
    consume_gap: Gap
    longest_wait_ms: int
    faults: list[str]


def tally(
    lines: Iterable[str], promises: Sequence[Promise], fault_ms: int, end_ms: int
) -> LossTally:
    """Judge a journal.

    Args:
        lines: of the journal.
        promises: what the feature promises besides: the order of each account with one listener at
            a time for a queue; no message without a line "from"; nothing for the reader "last".
        fault_ms: when the leader was lost.
        end_ms: when the load ended.
    """
    words = [line.split() for line in lines]
    told = {
        verb: [one[1:] for one in words if one[:1] == [verb]]
        for verb in ("reader", "acked", "failed", "from", "never", "buried", "wrong")
    }
    calls = sorted(
        (_call(one[1:]) for one in words if one[:1] == ["took"]), key=lambda one: one.began_us
    )
    acked = {one[0]: int(one[1]) for one in told["acked"]}
    never = {one[0] for one in told["never"]}
    buried = Counter(key for key, _ in {(one[0], one[1]) for one in told["buried"]})
    expected = acked.keys() - never
    readers = [one[0] for one in told["reader"]]
    lost = sum(
        len(
            expected
            - buried.keys()
            - {one.key for one in _of(calls, reader, readers) if one.succeeded}
        )
        for reader in readers
    )
    copies = Counter((one.key, one.copy, one.place) for one in calls)
    separate = Counter((key, copy) for key, copy, _ in copies)
    of_readers = Counter((one.key, one.copy, one.place, one.reader) for one in calls)
    told_apart = of_readers if len(readers) > 1 else copies
    faults = [
        *(" ".join(one) for one in told["wrong"]),
        *_too_early(calls, told["from"], needs_permission="permission" in promises),
        *(f"{key} came and must not" for key in sorted({one.key for one in calls} & never)),
    ]
    if "order" in promises:
        faults += [*_out_of_order(calls), *_at_once(calls)]
    if "permission" in promises:
        faults += [f"{key} was committed twice" for (key, _), n in separate.items() if n > 1]
    if "last gets nothing" in promises:
        faults += [f"{one.key} came after its commit" for one in calls if one.reader == "last"]
    return LossTally(
        acknowledged=len(acked),
        refused=len(told["failed"]),
        delivered=len(expected) * len(readers) - lost,
        lost=lost,
        stored_twice=len(copies) - len(separate) + sum(buried.values()) - len(buried),
        delivered_twice=len(calls) - len(told_apart),
        send_gap=longest_gap(list(acked.values()), fault_ms, end_ms),
        consume_gap=longest_gap([one.at_ms for one in calls], fault_ms, end_ms),
        longest_wait_ms=_longest_wait_ms(calls, acked, told["from"], buried.keys()),
        faults=faults,
    )


def _call(words: list[str]) -> Call:
    key, at_ms, place, reader, began_us, ended_us, verdict, copy = words
    return Call(
        key, int(at_ms), place, reader, int(began_us), int(ended_us), verdict == "ok", int(copy)
    )


def _of(calls: Sequence[Call], reader: str, readers: Sequence[str]) -> Iterable[Call]:
    """The calls of a reader; all of them if several share what comes."""
    return calls if len(readers) == 1 else (one for one in calls if one.reader == reader)


def _longest_wait_ms(
    calls: Sequence[Call], acked: Mapping[str, int], told: Sequence[list[str]], buried: Set[str]
) -> int:
    """How long the last message was waited for."""
    due = dict(acked)
    for key, at in told:
        due[key] = max(int(at), due.get(key, 0))
    came: dict[str, int] = {}
    for one in calls:
        if one.key in buried:
            came[one.key] = one.at_ms
        elif one.succeeded:
            came.setdefault(one.key, one.at_ms)
    return max((at - due[key] for key, at in came.items() if key in acked), default=0)


def _too_early(
    calls: Sequence[Call], told: Sequence[list[str]], *, needs_permission: bool
) -> Iterable[str]:
    """Messages that came before each of the times at which they were due."""
    due: dict[str, int] = {}
    for key, at in told:
        due[key] = min(int(at), due.get(key, int(at)))
    for one in calls:
        if one.key in due and one.at_ms < due[one.key]:
            yield f"{one.key} came {due[one.key] - one.at_ms} ms early"
        elif needs_permission and one.key not in due:
            yield f"{one.key} came before it was committed"


def _out_of_order(calls: Sequence[Call]) -> Iterable[str]:
    """Messages of an account that came first behind a later one, or before an earlier one came."""
    last: dict[int, int] = {}
    for one in calls:
        number = int(one.key.rpartition("-")[2])
        account = number % ACCOUNTS
        before = last.get(account, account - ACCOUNTS)
        if number > before:
            if number != before + ACCOUNTS:
                yield f"{one.key} came behind number {before}"
            last[account] = number


def _at_once(calls: Sequence[Call]) -> Iterable[str]:
    """Calls for one queue that began before the one before had ended."""
    queues: dict[str, list[Call]] = defaultdict(list)
    for one in calls:
        queues[one.place.partition("/")[0]].append(one)
    for of_queue in queues.values():
        for one, other in pairwise(of_queue):
            if other.began_us < one.ended_us:
                yield (
                    f"{other.reader} took {other.key} {one.ended_us - other.began_us} us before "
                    f"{one.reader} had done {one.key}"
                )
