"""The configuration that decides on each entry, read from the entries of the logs.

The product's code is not used: an entry of magic 3 is a configuration, and a quorum is
more than half of each non-empty half.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Sequence

from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import BEFORE_FIRST_INDEX


def founding(names: Iterable[str]) -> Configuration:
    """Return a configuration in which all of these vote."""
    voters = frozenset(names)
    return Configuration(voters=voters, addresses={name: f"{name}:1" for name in voters})


def is_quorum(group: Configuration, members: Collection[str]) -> bool:
    halves = [half for half in (group.voters, group.outgoing) if half]
    return all(2 * len(half.intersection(members)) > len(half) for half in halves)


class GroupHistory:
    """Every change that any log ever held. Logs are lists of chain sums: equal sum, equal entry."""

    def __init__(self, began_with: Configuration) -> None:
        self._began_with = NumberedConfiguration(BEFORE_FIRST_INDEX, began_with)
        self._changes: dict[tuple[int, int], NumberedConfiguration] = {}
        self._indexes: list[int] = []

    def seen(self, index: int, chain: int, change: NumberedConfiguration) -> None:
        """Note that entry `index` with that chain sum is a change."""
        if (index, chain) not in self._changes:
            self._changes[index, chain] = change
            if index not in self._indexes:
                insort(self._indexes, index)

    def change_at(self, log: Sequence[int], index: int) -> NumberedConfiguration | None:
        """Return the change that is entry `index` of a log, with the index it was made for."""
        return self._changes.get((index, log[index]))

    def in_force(self, log: Sequence[int], committed: int) -> NumberedConfiguration:
        """Return the configuration in force in a log that is committed up to `committed`."""
        for at in range(bisect_right(self._indexes, committed) - 1, -1, -1):
            index = self._indexes[at]
            if (change := self.change_at(log, index)) is not None:
                return NumberedConfiguration(index, change.configuration)
        return self._began_with

    def decides(
        self,
        log: Sequence[int],
        committed: int,
        index: int,
        holders: Callable[[int], Collection[str]],
    ) -> bool:
        """Return whether a member that knows `committed` may take entry `index` for committed.

        The configuration in force decides. A change before `index` that it has committed may decide
        the entries after it. `holders` returns the members that have an entry on disk.
        """
        group = self.in_force(log, committed).configuration
        if is_quorum(group, holders(index)):
            return True
        for at in self._indexes[bisect_right(self._indexes, committed) :]:
            if at >= index:
                return False
            change = self.change_at(log, at)
            if change is None:
                continue
            if not is_quorum(group, holders(at)):
                return False
            group = change.configuration
            if is_quorum(group, holders(index)):
                return True
        return False
