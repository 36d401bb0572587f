"""A block of a loop's thread ends at once where a wait for its end could never succeed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import trio

from dledger.loop_thread import CallMisplaced, LoopThread

# A block that waits for itself would never end; one that does not ends in milliseconds.
HANG_S = 30


@pytest.fixture
def loop() -> Iterator[LoopThread[None]]:
    opened: LoopThread[None] = LoopThread(nullcontext, "forgotten")
    opened.open()
    yield opened
    opened.close()


def test_a_block_ends_at_once_in_a_process_that_was_forked_since(
    loop: LoopThread[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []

    class Closed:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_given: object) -> None:
            left.append("in the loop")

    with ThreadPoolExecutor() as threads:
        block = loop.kept_open(Closed)
        block.__enter__()
        under_way: Future[None] = loop.submit(trio.sleep_forever)
        with monkeypatch.context() as forked:
            forked.setattr("dledger.loop_thread.os.getpid", lambda: 1)
            threads.submit(block.__exit__, None, None, None).result(HANG_S)
            threads.submit(loop.settle, [under_way]).result(HANG_S)
        loop.wait(trio.lowlevel.checkpoint)
        assert left == []  # the block of the other process is not touched


def test_a_block_and_its_loop_end_without_a_wait_in_the_thread_of_the_loop() -> None:
    loop: LoopThread[None] = LoopThread(nullcontext, "forgotten")
    loop.open()
    block = loop.kept_open(nullcontext)
    block.__enter__()

    async def collect_garbage() -> int:
        block.__exit__(None, None, None)
        loop.close()
        return threading.get_ident()

    assert loop.submit(collect_garbage).result(HANG_S) != threading.get_ident()
    loop.ended.result(HANG_S)


def test_calls_are_refused_once_gevent_has_patched_threads_and_blocks_end(
    loop: LoopThread[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    block = loop.kept_open(nullcontext)
    block.__enter__()
    patched = SimpleNamespace(is_module_patched=lambda name: name == "threading")
    with monkeypatch.context() as later:
        later.setitem(sys.modules, "gevent.monkey", patched)
        with pytest.raises(CallMisplaced, match="gevent"):
            loop.wait(trio.lowlevel.checkpoint)
        with pytest.raises(CallMisplaced, match="gevent"):
            LoopThread[None](nullcontext, "another").open()
        block.__exit__(None, None, None)
