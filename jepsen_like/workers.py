"""Processes that simulate, and leave Ctrl-C to the one that started them."""

from __future__ import annotations

import multiprocessing.pool
import signal
from multiprocessing import resource_tracker


def workers(count: int) -> multiprocessing.pool.Pool:
    """Start so many processes.

    Ctrl-C in a terminal reaches them as well, but only this process handles it. They inherit the
    mask; here it waits until they are started. The tracker of multiprocessing lifts the mask when
    it starts, so it starts before.
    """
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return multiprocessing.get_context("spawn").Pool(count)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
