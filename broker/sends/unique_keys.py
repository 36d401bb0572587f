"""The keys that messages are given which have none."""

from collections.abc import Callable
from typing import Final

from remoting.message.message_id import unique_message_key
from remoting.message.properties import UNIQUE_KEY, encode_properties
from remoting.net.address import Address

_SEPARATOR: Final = b"\x02"

# How much of a pair, with the separator behind it, is the message's own: the counter.
_COUNTER_BYTES: Final = 4 + len(_SEPARATOR)


class UniqueKeys:
    """Gives keys as RocketMQ's broker adds them.

    Args:
        address: the broker's; a part of each key.
        process_id: another one.
        wall_clock_ms: milliseconds since 1970; another one.
    """

    def __init__(self, address: Address, process_id: int, wall_clock_ms: Callable[[], int]) -> None:
        self._address = address
        self._process_id = process_id
        self._wall_clock_ms = wall_clock_ms
        self._counter = 0
        # A batch may need 8 000 at once: what they share is made once in a millisecond.
        self._shared_ms = -1
        self._shared = b""

    def add(self, run: bytes) -> bytes:
        """Properties that have no key, with a new one behind them."""
        self._counter += 1
        now_ms = self._wall_clock_ms()
        if now_ms != self._shared_ms:
            host, port = self._address
            key = unique_message_key(host, self._process_id, port, now_ms, 0)
            self._shared = encode_properties({UNIQUE_KEY: key})[:-_COUNTER_BYTES]
            self._shared_ms = now_ms
        between = b"" if not run or run.endswith(_SEPARATOR) else _SEPARATOR
        return b"%b%b%b%04X%b" % (
            *(run, between, self._shared),
            *(self._counter & 0xFFFF, _SEPARATOR),
        )
