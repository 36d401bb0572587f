"""Notifies the members of a consumer group that others have come or gone (40).

RocketMQ's broker notifies every member at every change. While 2,000 consumers start, that would be
two million notices. Here the members of a large group are notified in rounds: the changes of one
tick are one round, and a tick sends a limited number of notices. Each member is notified at least
once after the last change. Clients also check for changes themselves every 20 s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.consumers.members import Consumers
from broker.serving.origin import Origin
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

# Members of groups of up to this size are notified at once: that is less work than one pull.
AT_ONCE_MEMBERS: Final = 32

# Notices in one tick, over all groups: some 10 ms of the event loop.
MAX_NOTICES_A_TICK: Final = 1000


@dataclass(slots=True)
class _Round:
    """One round of notices in a group.

    Attributes:
        left: members that were not notified yet; None before the round begins.
        again: whether the group changed since it began, so that another round follows.
    """

    left: list[Origin] | None = None
    again: bool = False


class Notices:
    """The notices that are due.

    Args:
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
        """Notify the members of a changed group, now or with the next ticks."""
        round_ = self._rounds.get(group)
        if round_ is not None:
            round_.again |= round_.left is not None
            return
        if self._consumers.count(group) <= self._at_once_members:
            _tell(group, self._consumers.origins(group))
        else:
            self._rounds[group] = _Round()

    def tick(self) -> None:
        """Send due notices, up to the limit of a tick."""
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
                    self._rounds[group] = _Round()  # after the rounds of other groups

    def clear(self) -> None:
        """Drop all notices: this member no longer leads, and clients turn to the new leader."""
        self._rounds.clear()


def _tell(group: str, origins: Sequence[Origin]) -> None:
    for origin in origins:
        origin.send_oneway(
            Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
        )
