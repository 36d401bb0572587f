"""Bodies that producers have compressed, by each of RocketMQ's three ways."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from remoting.message.errors import CompressionMissing, MessageMalformed
from remoting.message.record import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    MessageRecord,
    body_of,
)

Compress = Callable[[bytes], bytes]


def zstd(body: bytes) -> bytes:
    """As Java's stream writes it: without the size of the body."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    return bytes(compressor.compress(body) + compressor.flush())


def lz4_frames(body: bytes) -> bytes:
    """As Java's stream writes it: without the size of the body, in blocks of 4 MiB."""
    with lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB) as compressor:
        return bytes(compressor.begin() + compressor.compress(body) + compressor.flush())


WAYS = pytest.mark.parametrize(
    ("flag", "compress"),
    [
        (0, zlib.compress),
        (COMPRESSION_ZLIB, zlib.compress),
        (COMPRESSION_LZ4, lz4_frames),
        (COMPRESSION_ZSTD, zstd),
    ],
    ids=["unnamed", "zlib", "lz4", "zstd"],
)
LIBRARIES = pytest.mark.parametrize(
    ("flag", "kind", "library"),
    [(COMPRESSION_LZ4, "LZ4", "lz4"), (COMPRESSION_ZSTD, "ZSTD", "zstandard")],
)


def inflated(flag: int, stored: bytes, limit: int = 1 << 20) -> bytes:
    return body_of(MessageRecord("T", stored, system_flag=COMPRESSED_FLAG | flag), limit)


@WAYS
@given(body=st.binary(max_size=3000), times=st.sampled_from([1, 7, 300]))
def test_a_body_comes_out_as_it_was_given(
    flag: int, compress: Compress, body: bytes, times: int
) -> None:
    assert inflated(flag, compress(body * times)) == body * times


@WAYS
def test_a_body_that_would_grow_over_the_limit_is_refused_before_it_has(
    flag: int, compress: Compress
) -> None:
    stored = compress(bytes(64 << 20))
    assert len(stored) < 300_000
    with pytest.raises(MessageMalformed, match="inflates to more than 1048576 bytes"):
        inflated(flag, stored)
    assert inflated(flag, compress(bytes(5000)), 5000) == bytes(5000)
    with pytest.raises(MessageMalformed, match="more than 4999"):
        inflated(flag, compress(bytes(5000)), 4999)


@WAYS
@given(data=st.data())
def test_a_body_that_ends_early_or_is_damaged_is_refused_or_the_same_and_nothing_else_is_raised(
    flag: int, compress: Compress, data: st.DataObject
) -> None:
    stored = compress(data.draw(st.binary(min_size=20, max_size=200)) * 30)
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(MessageMalformed):
        inflated(flag, stored[:cut])
    damaged = bytearray(stored)
    damaged[cut] ^= data.draw(st.integers(1, 255))
    try:
        assert len(inflated(flag, bytes(damaged))) <= 1 << 20
    except MessageMalformed as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017


@WAYS
@given(stored=st.binary(max_size=200))
def test_any_bytes_are_a_body_or_refused(flag: int, compress: Compress, stored: bytes) -> None:
    del compress
    try:
        inflated(flag, stored)
    except MessageMalformed as error:
        assert str(error)  # noqa: PT017


def test_a_body_that_wants_a_window_without_end_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    stored = bytes(compressor.compress(b"x" * 100) + compressor.flush())
    with pytest.raises(MessageMalformed, match="marked as ZSTD but is not"):
        inflated(COMPRESSION_ZSTD, stored)


@LIBRARIES
def test_without_the_library_the_error_names_it_and_how_to_get_it(
    flag: int, kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lz4", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CompressionMissing) as raised:
        inflated(flag, b"x")
    assert (raised.value.kind, raised.value.library) == (kind, library)
    assert str(raised.value) == (
        f"body is compressed by {kind}, which needs the library {library}: "
        "pip install 'dledger[compression]'"
    )


def test_a_way_that_rocketmq_does_not_know_is_refused() -> None:
    with pytest.raises(MessageMalformed, match="does not know"):
        inflated(7 << 8, b"x")
