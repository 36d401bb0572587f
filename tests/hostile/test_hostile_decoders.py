"""Decoders take any bytes: a value or their own error, in linear time; what they read they keep."""

from __future__ import annotations

import random
import re
import sys
import time
import zlib
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from broker.log.entry import encode_log_command
from broker.offsets.commands import CommitOffsets, CommittedOffset
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.record import MessageRecord, encode_record
from remoting.wire.command import Command, HeaderFormat
from remoting.wire.frame import encode_command
from tests.hostile.decoders import DECODERS, Decoder, corpus_of, recorded_frames
from tests.hostile.mutator import Mutator

EXAMPLES = 600
SEED = 20_261

# Python's lines for each byte: a record of 91 bytes takes 60 lines, a pair of 4 bytes takes 5.
MAX_LINES_PER_BYTE = 4
MAX_LINES_OF_ANY_INPUT = 1000

# What the work in C may take for 256 KiB: a pass takes 5 ms here, and one that looks back at each
# byte takes minutes.
LONG_BYTES = 1 << 18
MAX_CPU_S = 2.0


def fuzz(name: str, seed: int, examples: int) -> None:
    """Check so many damaged inputs; a failure says which."""
    mutator = Mutator(corpus_of(name), seed)
    for number in range(examples):
        data = mutator.next()
        try:
            DECODERS[name].check(data)
        except Exception as error:
            path = f"tests/hostile/data/corpus/{name}/{zlib.crc32(data):08x}"
            error.add_note(f"seed {seed}, example {number}; keep it as {path}: {data!r:.2000}")
            raise


@pytest.mark.parametrize("name", DECODERS)
def test_every_kept_input_ends_with_a_value_or_the_decoders_error(name: str) -> None:
    kept = corpus_of(name)
    assert kept
    for data in kept:
        DECODERS[name].check(data)


@pytest.mark.parametrize("name", DECODERS)
def test_damaged_input_ends_with_a_value_or_the_decoders_error(name: str) -> None:
    fuzz(name, SEED, EXAMPLES)


@pytest.mark.long
def test_a_minute_of_damaged_input_ends_with_values_or_the_decoders_errors() -> None:
    begun = time.monotonic()
    seed = time.time_ns()
    while time.monotonic() - begun < 60:
        for name in DECODERS:
            fuzz(name, seed, 500)
        seed += 1


def test_damaged_frames_of_real_clients_are_read_or_refused() -> None:
    mutator = Mutator(recorded_frames(), SEED)
    for _ in range(5 * EXAMPLES):
        DECODERS["stream"].check(mutator.next() + mutator.next())


def lines_of(decoder: Decoder, data: bytes) -> int:
    """How many lines of Python a decoder runs."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decoder.decode(data)
    except decoder.errors:
        pass
    finally:
        sys.settrace(before)
    return lines


def whole_and_long(name: str, size_bytes: int) -> bytes | None:
    """An input of many parts that is right, for the decoders whose lengths damage does not keep."""
    count = size_bytes // 100
    match name:
        case "header-binary" | "header-json" | "frame":
            fields = {f"field {number}": "x" * 80 for number in range(count)}
            is_json = name != "header-binary"
            kind = HeaderFormat.JSON if is_json else HeaderFormat.BINARY
            frame = encode_command(Command(1, fields, header_format=kind))
            return frame if name == "frame" else frame[8:]
        case "stream":
            return encode_command(Command(1)) * count
        case "records":
            return encode_record(MessageRecord("T", b"x")) * count
        case "batch":
            return encode_batch_body([BatchMessage(b"x" * 80)] * min(count, 8192))
        case "log-command":
            offsets = [CommittedOffset("g" * 50, "T" * 40, number, 7) for number in range(count)]
            return encode_log_command(CommitOffsets(offsets, 1, 2))
        case "registration-inflated":
            rows = [b"%010d 4 4 6 SINGLE_TAG" % number for number in range(count)]
            topics = b"".join([len(row).to_bytes(4) + row for row in rows])
            return b"\0\0\0\2{}" + count.to_bytes(4) + topics + b"\0\0\0\2[]"
        case _:
            return None


def grown(name: str, size_bytes: int, kept: int) -> Iterator[bytes]:
    """Inputs of about so many bytes: pieces of so many kept ones, and lists of their objects,
    repeated.
    """
    whole = whole_and_long(name, size_bytes)
    if whole is not None:
        yield whole
    choice = random.Random(SEED)
    for data in corpus_of(name)[:kept]:
        for found in list(re.finditer(rb"\[([^\[\]]+)\]", data))[:3]:
            part = found[1] + b","
            times = size_bytes // len(part)
            yield data[: found.start(1)] + part * times + data[found.start(1) :]
        for _ in range(3):
            begin = choice.randrange(len(data) + 1)
            part = data[begin : begin + choice.randint(1, 40)] or b"{"
            yield data[:begin] + part * (size_bytes // len(part)) + data[begin:]


def check_growth(name: str, kept: int) -> None:
    for data in grown(name, 1 << 14, kept):
        lines = lines_of(DECODERS[name], data)
        assert lines <= MAX_LINES_OF_ANY_INPUT + MAX_LINES_PER_BYTE * len(data), data[:200]
    for data in grown(name, LONG_BYTES, kept):
        before = time.thread_time()
        DECODERS[name].check(data)
        assert time.thread_time() - before < MAX_CPU_S, data[:200]


@pytest.mark.parametrize("name", DECODERS)
def test_the_steps_of_a_decoder_grow_with_its_input_and_not_faster(name: str) -> None:
    check_growth(name, kept=4)


@pytest.mark.long
def test_the_steps_of_each_decoder_grow_so_with_more_of_its_kept_inputs() -> None:
    for name in DECODERS:
        check_growth(name, kept=12)
