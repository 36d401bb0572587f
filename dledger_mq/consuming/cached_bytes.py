"""How many bytes of bodies and properties all queues of a consumer hold."""

from collections.abc import Callable


class CachedBytes:
    """A sum over queues, with a limit above which queues stop pulling.

    Args:
        max_bytes: the limit. A queue that holds nothing may always pull, so that one queue whose
            listener is stuck does not stop the others; each queue may exceed the limit by the
            answer to one pull.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._on_room: set[Callable[[], None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._bytes >= self._max_bytes

    def add(self, size: int) -> None:
        """A queue holds `size` bytes more."""
        self._bytes += size

    def remove(self, size: int) -> None:
        """A queue holds `size` bytes less; those that wait for this are told."""
        self._bytes -= size
        if self._on_room and not self.is_full:
            waiting, self._on_room = self._on_room, set()
            for tell in waiting:
                tell()

    def when_room(self, tell: Callable[[], None]) -> None:
        """Call `tell` once, when the limit is no longer reached, however often it is named."""
        self._on_room.add(tell)
