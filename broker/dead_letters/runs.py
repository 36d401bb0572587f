"""A set of queue offsets as runs: small if operators redrive whole queues."""

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True)
class OffsetRuns:
    """Ascending runs that neither overlap nor touch.

    `begins`: the first offset of each. `ends`: the offset after its last.
    """

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self.begins, offset) - 1
        return at >= 0 and offset < self.ends[at]

    def __len__(self) -> int:
        return len(self.begins)

    def add(self, offset: int) -> None:
        """Add an offset that is not in the set."""
        at = bisect_right(self.begins, offset)
        follows = at > 0 and self.ends[at - 1] == offset
        leads = at < len(self.begins) and self.begins[at] == offset + 1
        if follows and leads:
            self.ends[at - 1] = self.ends.pop(at)
            del self.begins[at]
        elif follows:
            self.ends[at - 1] = offset + 1
        elif leads:
            self.begins[at] = offset
        else:
            self.begins.insert(at, offset)
            self.ends.insert(at, offset + 1)

    def add_below(self, offset: int) -> None:
        """Add all smaller offsets."""
        at = bisect_right(self.begins, offset)
        if offset > 0:
            end = max(offset, self.ends[at - 1]) if at else offset
            self.begins[:at], self.ends[:at] = [0], [end]
