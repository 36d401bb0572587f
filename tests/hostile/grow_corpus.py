"""Adds to the corpus of a decoder what reaches lines that the corpus did not reach before.

    python -m tests.hostile.grow_corpus SECONDS [DECODER...]

An input that fails is kept as well, so that the tests find it again.
"""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path
from types import FrameType
from typing import Any

from tests.hostile.decoders import CORPUS, DECODERS, Decoder, corpus_of
from tests.hostile.mutator import Mutator

# Longer ones reach nothing that a shorter one does not.
MAX_KEPT_BYTES = 4096

_PACKAGES = tuple(f"/{name}/" for name in ("remoting", "broker"))


def reached(decoder: Decoder, data: bytes) -> tuple[frozenset[tuple[str, int, int]], str | None]:
    """The steps from line to line that an input takes, and the failure that it ends with."""
    steps: set[tuple[str, int, int]] = set()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not any(package in name for package in _PACKAGES):
            return None
        before = frame.f_lineno

        def trace_lines(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "line":
                steps.add((name, before, frame.f_lineno))
                before = frame.f_lineno
            return trace_lines

        return trace_lines

    failure = None
    sys.settrace(trace)
    try:
        decoder.check(data)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        sys.settrace(None)
    return frozenset(steps), failure


def grow(name: str, for_s: float) -> None:
    """Add to the corpus of one decoder for so long."""
    decoder, kept = DECODERS[name], corpus_of(name)
    known: set[tuple[str, int, int]] = set()
    for data in kept:
        known |= reached(decoder, data)[0]
    failures: set[str] = set()
    end = time.monotonic() + for_s
    mutator = Mutator(kept, time.time_ns())  # the corpus grows in place
    while time.monotonic() < end:
        data = mutator.next()
        steps, failure = reached(decoder, data)
        is_new_failure = failure is not None and failure[:40] not in failures
        if is_new_failure or (len(data) <= MAX_KEPT_BYTES and not steps <= known):
            known |= steps
            kept.append(data)
            _path_of(name, data).write_bytes(data)
        if failure is not None and is_new_failure:
            failures.add(failure[:40])
            print(f"{name}: {failure:.200}: {data!r:.200}")
    print(f"{name}: {len(kept)} inputs, {len(known)} steps")


def _path_of(name: str, data: bytes) -> Path:
    return CORPUS / name / f"{zlib.crc32(data):08x}"


if __name__ == "__main__":
    for decoder_name in sys.argv[2:] or DECODERS:
        grow(decoder_name, float(sys.argv[1]))
