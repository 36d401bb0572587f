"""Reasons to doubt a run that found nothing: faults without an effect, packets that no fault
lost. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jepsen_like.chaos.links.counts import Counts

Event = Mapping[str, object]
# The missing effect of a fault on packets or calls, by the count that did not grow.
_NOT_DONE = {
    "lost": "lost no packet",
    "held": "held up no packet",
    "copied": "doubled no packet",
    "delayed": "delayed no sync",
    "failed": "failed no sync",
    "connected": "made no connection",
    "answered": "was not answered",
    "renewed": "showed no new certificate",
    "stepped": "met no reading of the clock",
}


class Doubts(NamedTuple):
    """The doubts about a run.

    Attributes:
        texts: a sentence each, without a full stop.
        nothing_broke: whether there were faults whose effect was counted, and none had any.
    """

    texts: tuple[str, ...]
    nothing_broke: bool


def doubts_of(events: Iterable[Event], links: Counts) -> Doubts:
    """Return the doubts about a run.

    Args:
        events: those of faults.jsonl. The `end` of a fault whose effect is counted has `effect`:
            packets or calls by their fate, such as `{"lost": 17}`.
        links: the fates of all packets of the run.
    """
    texts: list[str] = []
    effects: list[int] = []
    for event in events:
        effect = event.get("effect")
        if event["event"] != "end" or not isinstance(effect, Mapping):
            continue
        for fate, count in effect.items():
            effects.append(count)
            if not count:
                how = _NOT_DONE.get(fate, f"says {fate}: 0")  # a count of a user's nemesis
                texts.append(f"fault {event['fault']} ({event['kind']}) {how}: it broke nothing")
    overflowed = sum(counts.overflowed for counts in links.values())
    if overflowed:
        texts.append(
            f"the switch lost {overflowed} packets for want of room: the run was overloaded"
        )
    return Doubts(tuple(texts), bool(effects) and not any(effects))
