"""Notices when the event loop is held: while one step runs, no input is read or answered.

Between two waits for input the loop runs steps of tasks, one after the other. When these together
take longer than HOLD_S, the watch counts it and logs the name of the code that ran meanwhile. A
thread finds that name; it cannot interrupt the code, and decides nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import trio

from dledger.refused_threads import NO_THREAD

# A heartbeat interval is 100 ms: what holds the loop for half of it shows in elections.
HOLD_S: Final = 0.05

# A hold is logged if it computed for HOLD_S, or took this long: on a busy machine the loop often
# gets no processor for a moment.
_LOGGED_S: Final = 0.25

# How often the thread looks: a hold that counts is seen at least once.
_LOOK_S: Final = HOLD_S / 2

# One name is logged this often: a lasting load must not flood the log.
_LOG_INTERVAL_S: Final = 60.0

# Names remembered for that; there are few places that can take long.
_MAX_NAMES: Final = 256

# Logged frames of a stack, the innermost first.
_FRAMES: Final = 3

logger = logging.getLogger(__name__)


class LoopWatch(trio.abc.Instrument):
    """Watches the loop of the task that makes it.

    Attributes:
        holds: how often the loop was held for longer than HOLD_S.
        held_s: the total of these times.
    """

    def __init__(self) -> None:
        self.holds = 0
        self.held_s = 0.0
        self._thread_id = threading.get_ident()
        self._since: float | None = None  # start of the steps that run now
        # Processor time of the loop's thread, and when it was read: not in each pass, as that takes
        # a call to the system, which costs a busy loop three hundredths of its time.
        self._busy_before = 0.0
        self._read_at = 0.0
        self._seen: tuple[float, str] | None = None  # start of the steps, and the code seen in them
        # by name: when last logged, and holds since then
        self._logged: dict[str, tuple[float, int]] = {}
        self._runs = threading.Lock()  # held until the watch stops

    def start(self) -> None:
        """Begin to watch. If the system starts no thread, holds are logged without names."""
        trio.lowlevel.add_instrument(self)
        self._runs.acquire()
        try:
            thread = threading.Thread(
                target=self._keep_looking, name="dledger-loop-watch", daemon=True
            )
            thread.start()
        except RuntimeError as error:
            NO_THREAD.tell(error)

    def stop(self) -> None:
        self._runs.release()
        trio.lowlevel.remove_instrument(self)

    def after_io_wait(self, timeout: float) -> None:
        self._since = time.perf_counter()

    def before_io_wait(self, timeout: float) -> None:
        since, self._since = self._since, None
        if since is None:
            return
        now = time.perf_counter()
        took_s = now - since
        if took_s <= HOLD_S and now < self._read_at + _LOOK_S:
            return
        before, self._busy_before, self._read_at = self._busy_before, time.thread_time(), now
        if took_s > HOLD_S:
            # The processor time may include that of a shorter pass just before.
            self._note(since, took_s, min(took_s, self._busy_before - before))

    def _note(self, since: float, took_s: float, busy_s: float) -> None:
        self.holds += 1
        self.held_s += took_s
        if busy_s < HOLD_S and took_s < _LOGGED_S:
            return
        seen = self._seen
        name = seen[1] if seen is not None and seen[0] == since else "nothing that was seen"
        logged_at, skipped = self._logged.get(name, (-_LOG_INTERVAL_S, 0))
        now = time.monotonic()
        if now < logged_at + _LOG_INTERVAL_S:
            self._logged[name] = (logged_at, skipped + 1)
            return
        if len(self._logged) >= _MAX_NAMES:
            self._logged.clear()
        self._logged[name] = (now, 0)
        logger.warning(
            "the event loop was held for %.0f ms, %.0f ms of it computing, in %s; %d times before "
            "that were not told",
            took_s * 1000,
            busy_s * 1000,
            name,
            skipped,
        )

    def _keep_looking(self) -> None:
        """Call `look` repeatedly. Runs in a thread."""
        while not self._runs.acquire(timeout=_LOOK_S):  # a fifth of what an Event's wait takes
            self.look()

    def look(self) -> None:
        """Keep the name of the running code if it has run for a while. Called in any thread."""
        since = self._since
        if since is None or time.perf_counter() - since < _LOOK_S:
            return
        frame = sys._current_frames().get(self._thread_id)
        if frame is not None and self._since == since:
            self._seen = (since, _name(frame))


def _name(frame: FrameType | None) -> str:
    """Return the innermost functions of a stack."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES:
        names.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return " < ".join(names)


# The watch of a loop, and the number of blocks that use it.
_watch: trio.lowlevel.RunVar[tuple[LoopWatch, int] | None] = trio.lowlevel.RunVar(
    "dledger_loop_watch", default=None
)


@contextmanager
def watched_loop() -> Iterator[LoopWatch]:
    """Watch this loop until the block ends; blocks that overlap share one watch."""
    found = _watch.get()
    if found is None:
        found = LoopWatch(), 0
        found[0].start()
    watch, users = found
    _watch.set((watch, users + 1))
    try:
        yield watch
    finally:
        found = _watch.get()
        users = 0 if found is None else found[1] - 1
        _watch.set((watch, users) if users else None)
        if not users:
            watch.stop()
