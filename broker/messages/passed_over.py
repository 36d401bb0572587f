"""The entries with records that the fold has passed over.

The fold knows why it passes over a record: the topic does not exist, or its queue ends elsewhere.
A log that has lost its beginning does not show this any more. So the state keeps which entries they
were, for queues that are made again from such a log (`store.queue_rebuild`).

No answer to a client depends on it. So members may differ in it where one goes on from a snapshot
of an earlier version, which has nothing of it.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

# They cost 2.5 MB of memory, and 0.6 MB of each snapshot. Entries are passed over when a topic is
# deleted while messages to it are on their way, a few each time, and retention takes them with the
# log. So a group has this many only if something goes wrong in it.
MAX_PASSED_OVER_ENTRIES: Final = 65_536


@dataclass(slots=True)
class PassedOver:
    """The entries with records that were passed over, from the first entry that is kept on.

    Beyond MAX_PASSED_OVER_ENTRIES the oldest are forgotten, on every member alike.

    Attributes:
        indexes: of the entries in the log, rising.
    """

    indexes: list[int] = field(default_factory=list)

    def add(self, index: int) -> None:
        """The records of an entry behind all others were passed over."""
        self.indexes.append(index)
        if len(self.indexes) > MAX_PASSED_OVER_ENTRIES:
            del self.indexes[0]

    def drop_before(self, index: int) -> None:
        """Forget the entries before one: the log has let go of them."""
        del self.indexes[: bisect_left(self.indexes, index)]

    def known(self) -> frozenset[int]:
        """The indexes of all of them."""
        return frozenset(self.indexes)

    @property
    def known_from(self) -> int:
        """The first entry from which on none was forgotten; 0 if none was at all.

        With as many as there may be it is not known whether one was.
        """
        return self.indexes[0] if len(self.indexes) >= MAX_PASSED_OVER_ENTRIES else 0
