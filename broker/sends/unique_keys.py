"""Keys for messages without one."""

from collections.abc import Callable
from typing import Final

from remoting.message.message_id import unique_message_key
from remoting.message.properties import UNIQUE_KEY, encode_properties
from remoting.net.address import Address

_SEPARATOR: Final = b"\x02"

# The counter at the end of a key, with the separator after it.
_COUNTER_BYTES: Final = 4 + len(_SEPARATOR)


class UniqueKeys:
    """Generates keys as RocketMQ's broker does, of its address, process id, time and a counter."""

    def __init__(self, address: Address, process_id: int, wall_clock_ms: Callable[[], int]) -> None:
        self._address = address
        self._process_id = process_id
        self._wall_clock_ms = wall_clock_ms
        self._counter = 0
        # A batch may need 8 000 at once: their common part is made once in a millisecond.
        self._shared_ms = -1
        self._shared = b""

    def add(self, run: bytes) -> bytes:
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
