"""The entries whose records the fold refused.

The fold refuses a record if its topic does not exist or its queue ends elsewhere. A log that has
lost its beginning does not show this any more. So the state remembers these entries, for queues
that are rebuilt from such a log (`store.queue_rebuild`).

No answer to a client depends on it. So members may differ in it: a member that started from a
snapshot of an earlier version lacks these entries.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

# They take 2.5 MB of memory, and 0.6 MB of each snapshot. Entries are refused when a topic is
# deleted while messages to it are in flight, a few each time, and retention forgets them with the
# log. So a group has this many only if something is wrong with it.
MAX_PASSED_OVER_ENTRIES: Final = 65_536


@dataclass(slots=True)
class PassedOver:
    """The entries whose records were refused, as far as the log is kept.

    Beyond MAX_PASSED_OVER_ENTRIES the oldest are forgotten, on every member alike.

    Attributes:
        indexes: of the entries, ascending.
    """

    indexes: list[int] = field(default_factory=list)

    def add(self, index: int) -> None:
        """Add an entry after all others."""
        self.indexes.append(index)
        if len(self.indexes) > MAX_PASSED_OVER_ENTRIES:
            del self.indexes[0]

    def drop_before(self, index: int) -> None:
        """Forget the entries before `index`, which the log has dropped."""
        del self.indexes[: bisect_left(self.indexes, index)]

    def known(self) -> frozenset[int]:
        return frozenset(self.indexes)

    @property
    def known_from(self) -> int:
        """The index from which on no entry was forgotten; 0 if none ever was.

        When the list is full, it is unknown whether one was.
        """
        return self.indexes[0] if len(self.indexes) >= MAX_PASSED_OVER_ENTRIES else 0
