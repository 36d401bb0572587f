"""The offsets that groups have pulled, ahead of what they have committed; for operators."""

from typing import Final

from broker.pulls.request import PullRequest
from broker.serving.parts import Shared

# Of groups that pull from this leader. Beyond it all are forgotten, until the next pulls.
MAX_QUEUES: Final = 200_000


class PulledOffsets:
    """The offsets of the last pulls."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, str, int], int] = {}

    def note(self, request: PullRequest) -> None:
        if len(self._offsets) >= MAX_QUEUES:
            self._offsets.clear()
        self._offsets[request.key] = request.offset

    def of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the last offset that a group has pulled; None if it has not since this member
        leads.
        """
        return self._offsets.get((group, topic, queue_id))

    def clear(self) -> None:
        self._offsets.clear()


PULLED_OFFSETS: Final = Shared("pulled offsets", lambda _parts: PulledOffsets())
