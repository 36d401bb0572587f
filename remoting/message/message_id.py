"""The two ids of a message: its place in a broker's log, and the id from its client."""

import struct
from dataclasses import dataclass
from typing import Final

from remoting.message.errors import MessageMalformed
from remoting.message.host import packed_host, unpacked_host

_PORT_OFFSET: Final = struct.Struct(">iq")
_UNIQUE_TAIL: Final = struct.Struct(">HIIH")

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    host: str
    port: int
    physical_offset: int


def message_id(host: str, port: int, physical_offset: int) -> str:
    """Return the offset id: upper-case hex of host, port and physical offset; 32 digits for IPv4.

    Clients request the message by it, from the address that it contains.

    Raises:
        MessageMalformed: the host is not a numeric address, or a number does not fit.
    """
    try:
        tail = _PORT_OFFSET.pack(port, physical_offset)
    except struct.error:
        raise MessageMalformed(f"no id for port {port}, offset {physical_offset}") from None
    return (packed_host(host) + tail).hex().upper()


def parse_message_id(text: str) -> OffsetMessageId:
    """Decode an offset id of 32 (IPv4) or 56 (IPv6) hex digits. Raises MessageMalformed."""
    packed = b""
    if len(text) in (32, 56) and text.isalnum():
        try:
            packed = bytes.fromhex(text)
        except ValueError:
            packed = b""
    if not packed:
        raise MessageMalformed(f"{text!r:.80} is not a message id: give 32 or 56 hex digits")
    port, physical_offset = _PORT_OFFSET.unpack_from(packed, len(packed) - _PORT_OFFSET.size)
    return OffsetMessageId(
        unpacked_host(packed[: -_PORT_OFFSET.size]), int(port), int(physical_offset)
    )


def unique_message_key(host: str, process_id: int, instance: int, now_ms: int, counter: int) -> str:
    """Return the id that a client gives its message (property UNIQ_KEY): 32 upper-case hex digits.

    It has the parts of the Java client's: IPv4 host, process id (16 bits), a number that tells two
    clients of one process apart (32 bits), milliseconds since the month began (32 bits), counter
    (16 bits). The tools of RocketMQ compute from it roughly when the message was sent.

    Args:
        host: a numeric address; of an IPv6 address the last four bytes are used.
        process_id: the process.
        instance: a number of this client in its process.
        now_ms: wall clock, milliseconds since 1970 UTC.
        counter: counts messages; only its low 16 bits are used.

    Raises:
        MessageMalformed: the host is not a numeric address.
    """
    month_began = month_start_ms(now_ms)
    tail = _UNIQUE_TAIL.pack(
        process_id & 0xFFFF,
        instance & 0xFFFFFFFF,
        (now_ms - month_began) & 0xFFFFFFFF,
        counter & 0xFFFF,
    )
    return (packed_host(host)[-4:] + tail).hex().upper()


def month_start_ms(now_ms: int) -> int:
    """Return the begin of the month of `now_ms` in UTC, in milliseconds since 1970.

    Computed in years that begin in March, where the leap day is the last of its year: day d of
    such a year is in month (5 d + 2) // 153, and month m begins at day (153 m + 2) // 5.
    """
    days = now_ms // _DAY_MS
    day_of_era = (days + 719_468) % 146_097  # since 1 March of a year that 400 divides
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month + 2) // 5
    return (days - day_of_month) * _DAY_MS
