"""Inflates bodies that producers compressed by zlib, LZ4 or ZSTD.

zlib is in every Python. The others are libraries that `pip install 'dledger[compression]'` brings.
They are loaded by the first body that needs them. Source: RocketMQ's CompressorFactory, which uses
the frame format of LZ4.
"""

import zlib
from typing import Final

from remoting.message.errors import CompressionMissing, MessageMalformed

# ZSTD inflates a whole piece, which may be 32 blocks of 128 KiB; LZ4 takes a limit.
_PIECE_BYTES: Final = 128
_OUTPUT_BYTES: Final = 256 * 1024

# Window bits by which zlib takes its own form and that of gzip.
_GZIP_OR_ZLIB: Final = 47

# The largest window of a body of ZSTD; the levels up to 19 have 8 MiB.
_MAX_WINDOW_BYTES: Final = 16 * 1024 * 1024


def inflate_zlib(body: bytes, max_bytes: int) -> bytes:
    """Inflate a body of zlib, or of gzip, as clients by gRPC compress. Raises MessageMalformed."""
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        inflated = inflater.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise MessageMalformed(f"body is marked compressed but is not zlib ({error})") from None
    return _checked(inflated, max_bytes, inflater.eof)


def inflate_lz4(body: bytes, max_bytes: int) -> bytes:
    """Inflate a body of LZ4. Raises MessageMalformed, CompressionMissing."""
    try:
        import lz4.frame
    except ImportError:
        raise CompressionMissing("LZ4", "lz4") from None
    inflater = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    try:
        given = body
        while size <= max_bytes and not inflater.eof:
            part = inflater.decompress(given, _OUTPUT_BYTES)
            given = b""  # the decompressor keeps the rest
            parts.append(part)
            size += len(part)
            if not part:
                break
    except RuntimeError as error:
        raise MessageMalformed(f"body is marked as LZ4 but is not ({error})") from None
    return _checked(b"".join(parts), max_bytes, inflater.eof)


def inflate_zstd(body: bytes, max_bytes: int) -> bytes:
    """Inflate a body of ZSTD. Raises MessageMalformed, CompressionMissing."""
    try:
        import zstandard
    except ImportError:
        raise CompressionMissing("ZSTD", "zstandard") from None
    inflater = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()
    parts: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(body), _PIECE_BYTES):
            part = inflater.decompress(body[at : at + _PIECE_BYTES])
            parts.append(part)
            size += len(part)
            if size > max_bytes or inflater.eof:
                break
    except zstandard.ZstdError as error:
        raise MessageMalformed(f"body is marked as ZSTD but is not ({error})") from None
    return _checked(b"".join(parts), max_bytes, inflater.eof)


def _checked(body: bytes, max_bytes: int, has_ended: bool) -> bytes:
    if len(body) > max_bytes:
        raise MessageMalformed(f"body inflates to more than {max_bytes} bytes: send less")
    if not has_ended:
        raise MessageMalformed("compressed body ends early: let the producer send it again")
    return body
