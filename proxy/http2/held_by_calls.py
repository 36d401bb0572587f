"""What calls of all connections of a server hold: bytes of requests, or of answers. Pure."""

from typing import Final, Protocol

from remoting.net.held_bytes import HeldBytes

# As all connections of remoting may hold. Fifty of the largest messages are half of it.
MOST_HELD_BYTES: Final = 256 * 1024 * 1024


class Holder(Protocol):
    """A call."""

    def give_back(self) -> None:
        """Give back the windows that were kept: there is room again."""

    def give_up(self, reason: str) -> None:
        """End the connection of this call. All its calls are let go."""


class HeldByCalls:
    """Bytes of messages: requests until they are read, or answers until they are taken.

    Above a half of the limit, clients get no window for more of an incomplete request. Above the
    limit, connections end, that whose call has completed no message for the longest time before
    the others.

    Args:
        limit_bytes: of all connections.
        what: what takes too long, for the text that clients get.
    """

    def __init__(self, limit_bytes: int = MOST_HELD_BYTES, what: str = "a request goes on") -> None:
        self._what = what
        self._held = HeldBytes(limit_bytes, self._relieve)
        # Calls that hold something: the one that completed a message last is the last.
        self._holders: dict[Holder, int] = {}
        self._kept: dict[Holder, None] = {}

    @property
    def total_bytes(self) -> int:
        return self._held.total_bytes

    @property
    def is_tight(self) -> bool:
        """Whether more than half of the limit is held."""
        return self._held.is_tight

    def add(self, holder: Holder, count: int) -> None:
        """Hold so much more of a call."""
        self._holders[holder] = self._holders.get(holder, 0) + count
        self._held.add(count)

    def take(self, holder: Holder, count: int) -> None:
        """Hold so much less of a call that went on, unless it was let go before."""
        held = self._holders.pop(holder, None)
        if held is None:
            return
        if held > count:
            self._holders[holder] = held - count
        self._held.add(-min(held, count))
        self._give_back()

    def let_go(self, holder: Holder) -> None:
        """Note that a call is over."""
        self._kept.pop(holder, None)
        held = self._holders.pop(holder, None)
        if held is not None:
            self._held.add(-held)
            self._give_back()

    def keep_window(self, holder: Holder) -> None:
        """Have `give_back` called once there is room."""
        self._kept[holder] = None

    def _give_back(self) -> None:
        if not self._kept or self.is_tight:
            return
        kept, self._kept = self._kept, {}
        for holder in kept:
            holder.give_back()

    def make_room(self) -> None:
        """End the connection with the oldest progress, if more than half of the limit is held."""
        if self.is_tight:
            self._relieve(1)

    def _relieve(self, count: int) -> None:
        rest = self.total_bytes - count
        while self.total_bytes > rest and self._holders:
            holder = next(iter(self._holders))
            limit_bytes = self._held.limit_bytes
            holder.give_up(
                f"{self._what} for too long, while those of all connections hold "
                f"{self.total_bytes} bytes of {limit_bytes}"
            )
            self.let_go(holder)
