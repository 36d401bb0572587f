"""A signal handler that raises in the midst of a future's methods leaves its lock free."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, _base
from contextlib import contextmanager
from types import FrameType

import pytest

from dledger.call_future import CallFuture, wait_for_all

LIMIT_S = 30.0
INTERRUPTS = 60
INTERRUPTED = {threading.__file__, _base.__file__}


class Interrupted(BaseException):
    """What the handler raises, as that of Ctrl-C does."""


@contextmanager
def interrupts() -> Iterator[None]:
    """Send the main thread signals whose handler raises in the methods of a future."""
    main, ended = threading.main_thread().ident, threading.Event()
    assert main is not None

    def interrupt(_number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename in INTERRUPTED:
            raise Interrupted

    def tell() -> None:
        while not ended.wait(0.0003):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    signal.signal(signal.SIGUSR1, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def is_free(future: Future[None]) -> bool:
    """Whether another thread can answer it."""
    thread = threading.Thread(target=future.set_result, args=(None,), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return not thread.is_alive()


def look(future: Future[None]) -> None:
    for _ in range(1000):
        future.done()


def wait_with_others(future: Future[None]) -> None:
    wait_for_all([future, CallFuture()], 0.0002)


@pytest.mark.parametrize("use", [look, wait_with_others])
def test_an_interrupt_leaves_the_lock_of_a_future_free(use: Callable[[Future[None]], None]) -> None:
    interrupted: list[Future[None]] = []
    while len(interrupted) < INTERRUPTS:
        future: Future[None] = CallFuture()
        try:
            with interrupts():
                while True:
                    use(future)
        except Interrupted:
            interrupted.append(future)
    assert all(is_free(future) for future in interrupted)


def test_a_timeout_of_a_signal_handler_ends_a_wait_without_a_limit() -> None:
    def too_late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(TimeoutError):
            wait_for_all([CallFuture()])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_wait_with_a_limit_ends_without_an_error() -> None:
    wait_for_all([CallFuture(), CallFuture()], 0.001)
