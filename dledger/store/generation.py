"""Which recovery of a group a folder belongs to.

`dledger.rescue.group_recovery` begins a group again from one member, in the next generation. Two
operators may do so with two copies of one folder, so the number alone cannot distinguish the
resulting groups: each recovery draws a mark as well.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HIGHEST_NUMBER = 999_999_999

_MARK = re.compile(r"[0-9a-f]{16}")


class Generation(NamedTuple):
    """How often the group was recovered, and the mark that the last recovery drew.

    The mark is empty for a group that was never recovered, and after recoveries by versions before
    marks.
    """

    number: int = 0
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.number} of mark {self.mark}" if self.mark else str(self.number)


NEVER_RECOVERED = Generation()


def is_generation(number: object, mark: object) -> bool:
    """Return whether `number` and `mark` are a valid generation."""
    if type(number) is not int or not 0 <= number <= HIGHEST_NUMBER or type(mark) is not str:
        return False
    return not mark or (number > 0 and _MARK.fullmatch(mark) is not None)
