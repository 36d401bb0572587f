"""What speaks against a run that found nothing: faults that broke nothing, packets that got lost
without being told to. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jepsen_like.chaos.links.counts import Counts

Event = Mapping[str, object]
# What a fault that broke nothing did not do to packets or calls, by the count that did not grow.
_NOT_DONE = {
    "lost": "lost no packet",
    "held": "held up no packet",
    "copied": "doubled no packet",
    "delayed": "delayed no sync",
    "failed": "failed no sync",
    "connected": "made no connection",
    "stepped": "met no reading of the clock",
}


class Doubts(NamedTuple):
    """What a run leaves in doubt.

    Attributes:
        texts: a sentence each, without a full stop.
        nothing_broke: whether there were faults whose effect was counted, and none had any.
    """

    texts: tuple[str, ...]
    nothing_broke: bool


def doubts_of(events: Iterable[Event], links: Counts) -> Doubts:
    """The doubts that remain of a run.

    Args:
        events: those of faults.jsonl. The `end` of a fault whose effect is counted has `effect`:
            packets or calls by what became of them, such as `{"lost": 17}`.
        links: what became of all packets of the run.
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
                how = _NOT_DONE.get(fate, f"says {fate}: 0")  # a nemesis of the user's counts it
                texts.append(f"fault {event['fault']} ({event['kind']}) {how}: it broke nothing")
    overflowed = sum(counts.overflowed for counts in links.values())
    if overflowed:
        texts.append(
            f"the switch lost {overflowed} packets for want of room: the run was overloaded"
        )
    return Doubts(tuple(texts), bool(effects) and not any(effects))
