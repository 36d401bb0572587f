"""What a name server counts."""

from collections import Counter
from typing import Final

# Clients may send any code.
OTHER: Final = "other"


class Figures:
    """Counts of one name server since its start.

    Attributes:
        connections: that are open.
        requests: by request code, as text; "other" for all codes that are not answered.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.requests: Counter[str] = Counter()

    def count(self, code: int, is_answered: bool) -> None:
        self.requests[str(int(code)) if is_answered else OTHER] += 1
