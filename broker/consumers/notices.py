"""Tells the members of a consumer group that others have come or gone (40). Pure.

RocketMQ's broker tells every member at every change. While 2,000 consumers start, that would be two
million notices. Here the members of a large group are told in rounds: the changes of one tick are
one round, and a tick sends so many notices at most. Each member is told at least once after the
last change. Clients look for changes by themselves every 20 s as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.consumers.members import Consumers
from broker.serving.origin import Origin
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

# Groups of so many members are told at once: that is less work than one pull.
AT_ONCE_MEMBERS: Final = 32

# Notices in one tick, over all groups: some 10 ms of the event loop.
MAX_NOTICES_A_TICK: Final = 1000


@dataclass(slots=True)
class _Round:
    """One round of notices in a group.

    Attributes:
        left: members that were not told yet; None before the round begins.
        again: whether the group changed since it began, so that another one follows.
    """

    left: list[Origin] | None = None
    again: bool = False


class Notices:
    """The notices that are due.

    Args:
        consumers: the members of the groups.
        at_once_members: see AT_ONCE_MEMBERS.
        max_a_tick: see MAX_NOTICES_A_TICK.
    """

    def __init__(
        self,
        consumers: Consumers,
        at_once_members: int = AT_ONCE_MEMBERS,
        max_a_tick: int = MAX_NOTICES_A_TICK,
    ) -> None:
        self._consumers = consumers
        self._at_once_members = at_once_members
        self._max_a_tick = max_a_tick
        self._rounds: dict[str, _Round] = {}  # by group, the oldest first

    def changed(self, group: str) -> None:
        """The members of a group have changed: tell them, now or with the next ticks."""
        round_ = self._rounds.get(group)
        if round_ is not None:
            round_.again |= round_.left is not None
            return
        if self._consumers.count(group) <= self._at_once_members:
            _tell(group, self._consumers.origins(group))
        else:
            self._rounds[group] = _Round()

    def tick(self) -> None:
        """Send what is due, as far as one tick goes."""
        room = self._max_a_tick
        for group, round_ in list(self._rounds.items()):
            if room <= 0:
                return
            if round_.left is None:
                round_.left = self._consumers.origins(group)
            now, round_.left = round_.left[:room], round_.left[room:]
            room -= len(now)
            _tell(group, now)
            if not round_.left:
                del self._rounds[group]
                if round_.again:
                    self._rounds[group] = _Round()  # behind the rounds of other groups

    def clear(self) -> None:
        """Tell nothing more: this member no longer leads, and clients turn to the new leader."""
        self._rounds.clear()


def _tell(group: str, origins: Sequence[Origin]) -> None:
    for origin in origins:
        origin.send_oneway(
            Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
        )
