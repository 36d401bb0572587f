"""Frames: the form of commands in a stream of bytes.

Layout, big-endian: i32 total length (does not count itself), u8 header type, u24 header length,
header, body. Source: RocketMQ's NettyEncoder and NettyDecoder; the limit of 16 MiB is theirs.
"""

import struct
import sys
from typing import Final

from remoting.wire.command import Command, HeaderFormat
from remoting.wire.errors import FrameError, FrameMalformed, FrameTooLarge, ProtocolDiffers
from remoting.wire.header_binary import decode_binary_header, encode_binary_header
from remoting.wire.header_json import decode_json_header, encode_json_header
from remoting.wire.other_protocols import other_protocol

# The frame limit of RocketMQ's servers and clients, counted as the length field counts.
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

# Message properties are at most 32767 bytes and JSON escapes make at most 6 of each, which is
# under 200 KB; the other fields are names and numbers. A longer header is not a header.
MAX_HEADER_BYTES: Final = 512 * 1024

# Pieces shorter than this are joined in one buffer, so that a frame that arrives byte by byte does
# not take an object for each byte. Longer pieces are kept without a copy.
_SMALL_PIECE_BYTES: Final = 4096

_PREFIX: Final = struct.Struct(">II")  # total length; type and header length
_PREFIX_BYTES: Final = 8

_JSON: Final = HeaderFormat.JSON
_BINARY: Final = HeaderFormat.BINARY


def encode_command(command: Command) -> bytes:
    """Encode `command` as a frame, in its header format.

    Raises:
        FrameTooLarge: the frame is over 16 MiB or its header over 512 KiB; no peer would take it.
        FrameMalformed: the command does not fit the binary header format.
    """
    header = (
        encode_json_header(command)
        if command.header_format is _JSON
        else encode_binary_header(command)
    )
    header_bytes = len(header)
    total = 4 + header_bytes + len(command.body)
    if header_bytes > MAX_HEADER_BYTES:
        raise FrameTooLarge(header_bytes, MAX_HEADER_BYTES, "header")
    if total > MAX_FRAME_BYTES:
        raise FrameTooLarge(total, MAX_FRAME_BYTES)
    prefix = _PREFIX.pack(total, command.header_format << 24 | header_bytes)
    return b"".join((prefix, header, command.body))


def decode_frame(frame: bytes) -> Command:
    """Decode exactly one whole frame. Raises FrameError."""
    decoder = FrameDecoder()
    commands = decoder.feed(frame)
    if len(commands) != 1 or decoder.buffered_bytes or decoder.error is not None:
        raise FrameMalformed("not exactly one frame")
    return commands[0]


class FrameDecoder:
    """Cuts a stream of bytes into commands, in whatever pieces it arrives.

    A body is copied once, from the received pieces to the command. Lengths are checked as soon as
    they are known and before anything is stored for them.

    Args:
        max_frame_bytes: the longest accepted frame, as the length field counts.
        max_commands: the most commands returned at once; the data behind them is kept for the next
            `feed`. None: all.

    Attributes:
        error: the error of the stream, or None. Once set it stays, and every `feed` raises it.
    """

    def __init__(
        self, max_frame_bytes: int = MAX_FRAME_BYTES, max_commands: int | None = None
    ) -> None:
        self.error: FrameError | None = None
        self._max_frame_bytes = max_frame_bytes
        self._max_commands = max_commands or sys.maxsize
        self._pieces: list[bytes | bytearray] = []
        self._held = 0
        # The bytes that `_held` must reach before the next step of decoding.
        self._needed = _PREFIX_BYTES
        self._behind = b""  # data behind `max_commands` commands

    @property
    def buffered_bytes(self) -> int:
        """The bytes of an incomplete frame, or not decoded yet."""
        return self._held or len(self._behind)

    @property
    def has_more(self) -> bool:
        """Whether a `feed` of nothing may return further commands."""
        return bool(self._behind)

    def feed(self, data: bytes) -> list[Command]:
        """Decode received bytes; return the commands that they complete.

        If a bad frame follows good ones in the same data, the good ones are returned and `error` is
        set; check it after each call.

        Raises:
            FrameError: the data holds no good frame before a bad one, or an earlier call found one.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        commands: list[Command] = []
        if self._behind:  # then no part of a frame is held
            data, self._behind = self._behind + data, b""
        try:
            if self._held == 0:
                self._cut(data, 0, commands)
            elif self._held + len(data) < self._needed:
                self._hold(data)
            else:
                self._complete(data, commands)
        except FrameError as error:
            self.error = error
            self._pieces = []
            self._held = 0
            self._behind = b""
            if not commands:
                raise
        return commands

    def _cut(self, data: bytes, at: int, commands: list[Command]) -> None:
        """Decode whole frames from `data` at `at`; hold the rest. Nothing is held before."""
        length = len(data)
        while length - at >= _PREFIX_BYTES:
            if len(commands) >= self._max_commands:
                self._needed = _PREFIX_BYTES
                self._behind = data[at:]
                return
            total, second = _PREFIX.unpack_from(data, at)
            header_bytes = second & 0xFFFFFF
            if (
                total > self._max_frame_bytes
                or header_bytes + 4 > total
                or header_bytes > MAX_HEADER_BYTES
                or second >> 24 > _BINARY
            ):
                raise self._refusal(data[at : at + _PREFIX_BYTES])
            end = at + 4 + total
            if end > length:
                self._needed = 4 + total
                self._hold(data[at:] if at else data)
                return
            body_at = at + _PREFIX_BYTES + header_bytes
            header = data[at + _PREFIX_BYTES : body_at]
            decode = decode_json_header if second >> 24 == _JSON else decode_binary_header
            commands.append(decode(header, data[body_at:end]))
            at = end
        self._needed = _PREFIX_BYTES
        if at < length:
            self._hold(data[at:])

    def _refusal(self, prefix: bytes) -> FrameError:
        """Return the error of a frame whose first words are wrong."""
        if (other := other_protocol(prefix)) is not None:
            return ProtocolDiffers(*other)
        total, second = _PREFIX.unpack(prefix)
        header_bytes, header_type = second & 0xFFFFFF, second >> 24
        if total > self._max_frame_bytes:
            return FrameTooLarge(total, self._max_frame_bytes)
        if header_bytes + 4 > total:
            return FrameMalformed(f"header of {header_bytes} bytes in a frame of {total}")
        if header_bytes > MAX_HEADER_BYTES:
            return FrameTooLarge(header_bytes, MAX_HEADER_BYTES, "header")
        return FrameMalformed(f"unknown header type {header_type}")

    def _hold(self, data: bytes) -> None:
        self._held += len(data)
        if len(data) >= _SMALL_PIECE_BYTES:
            self._pieces.append(data)
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray):
            last += data
        else:
            self._pieces.append(bytearray(data))

    def _complete(self, data: bytes, commands: list[Command]) -> None:
        if self._needed == _PREFIX_BYTES:
            # At most seven bytes are held, so joining them to the data costs one copy of it.
            joined = b"".join((*self._pieces, data))
            self._pieces = []
            self._held = 0
            self._cut(joined, 0, commands)
            return
        used = self._needed - self._held
        frame_pieces = self._pieces
        frame_pieces.append(data[:used] if used < len(data) else data)
        self._pieces = []
        self._held = 0
        commands.append(_decode_pieces(frame_pieces))
        self._cut(data, used, commands)


def _decode_pieces(pieces: list[bytes | bytearray]) -> Command:
    """Decode one whole frame in several pieces, the first of at least eight bytes."""
    _total, second = _PREFIX.unpack_from(pieces[0])
    header_end = _PREFIX_BYTES + (second & 0xFFFFFF)
    first = 0
    held = len(pieces[0])
    while held < header_end:
        first += 1
        held += len(pieces[first])
    head = pieces[0] if first == 0 else b"".join(pieces[: first + 1])
    header = bytes(head[_PREFIX_BYTES:header_end])
    with memoryview(head) as view:
        body = b"".join((view[header_end:], *pieces[first + 1 :]))
    decode = decode_json_header if second >> 24 == _JSON else decode_binary_header
    return decode(header, body)
