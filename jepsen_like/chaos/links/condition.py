"""The effect of a link on packets, in one direction. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jepsen_like.chance import Chance


@dataclass(frozen=True)
class LinkCondition:
    """The fate of packets from one host to another.

    Args:
        cut: none arrives.
        loss: the share that is lost.
        delay_s: how late each is.
        jitter_s: up to so much later, drawn for each packet; packets that are sent close to one
            another keep their order unless `reorder` says otherwise.
        duplicate: the share that comes twice.
        reorder: the share that is held up so that later ones overtake it.
    """

    cut: bool = False
    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    @property
    def is_clear(self) -> bool:
        """Whether packets pass as if there were no condition."""
        return self == CLEAR


CLEAR = LinkCondition()
CUT = LinkCondition(cut=True)
# How long a packet that is to be overtaken is held up.
OVERTAKEN_S = 0.02
# How much later a copy of a packet comes.
COPY_S = 0.005


class Link:
    """One direction between two hosts."""

    def __init__(self, condition: LinkCondition, chance: Chance) -> None:
        self.condition = condition
        self._chance = chance
        self._last_s = 0.0

    def arrivals(self, now_s: float) -> tuple[float, ...]:
        """Return when a packet that is sent now arrives: not at all, once or twice."""
        condition, chance = self.condition, self._chance
        if condition.cut or (condition.loss and chance.happens(condition.loss)):
            return ()
        at_s = now_s + condition.delay_s
        if condition.jitter_s:
            at_s += chance.uniform(0.0, condition.jitter_s)
        if condition.reorder and chance.happens(condition.reorder):
            at_s += OVERTAKEN_S
        else:
            at_s = self._last_s = max(at_s, self._last_s)
        if condition.duplicate and chance.happens(condition.duplicate):
            return at_s, at_s + COPY_S
        return (at_s,)
