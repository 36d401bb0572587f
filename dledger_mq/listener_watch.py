"""Logs listeners that block the loop of their client, or take long.

A listener that blocks in its client's loop (`time.sleep`, a database's driver) stops everything
there: heartbeats, pulls, and all other listeners. One that waits long, or blocks elsewhere, takes
up one of its consumer's calls. Both are logged while they last, and once a minute.
"""

import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from types import CodeType, CoroutineType, FrameType
from typing import Any, Final, NamedTuple, TypeVar

import trio

from dledger.refused_threads import NO_THREAD
from dledger_mq.errors import InvalidListener
from dledger_mq.received_message import ReceivedMessage

_log = logging.getLogger(__name__)

Given = TypeVar("Given", "list[ReceivedMessage]", ReceivedMessage)
Result = TypeVar("Result")
Caller = TypeVar("Caller", bound=Callable[..., Any])

# A healthy loop runs each task within milliseconds. No burst of messages blocks it for a second.
BLOCKED_S: Final = 1.0

# How often the loop records that it runs, and how often that is checked.
CHECK_S: Final = 0.5

# How often each listener is logged: it may be slow with every message.
LOG_S: Final = 60.0

# The listeners that are remembered as logged. Programs have few.
_MAX_NAMES: Final = 256

# Modules that are not the application's.
_NO_APPLICATION: Final = sys.stdlib_module_names | {
    "dledger",
    "dledger_mq",
    "outcome",
    "remoting",
    "trio",
}

# Functions that call a user's function, which has the next inner frame.
_callers: set[CodeType] = set()


def calls_users(function: Callable[..., Any]) -> None:
    """Record that a function calls a listener or a check, in any thread."""
    _callers.add(function.__code__)


def called_elsewhere(caller: Caller, function: Callable[..., Any]) -> Caller:
    """Give a function that calls a listener in another thread or loop the listener's name."""
    calls_users(caller)
    caller.__module__ = function.__module__
    caller.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return caller


class ListenerCall(NamedTuple):
    """A running call.

    Attributes:
        slow_s: a call that takes longer is logged.
        began: on trio's clock.
        awaitable: what the function returned.
    """

    function: Callable[[Any], object]
    given: list[ReceivedMessage] | ReceivedMessage
    group: str
    slow_s: float
    began: float
    awaitable: object

    @property
    def name(self) -> str:
        function = self.function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{function.__module__}.{name}"

    @property
    def work(self) -> str:
        messages = self.given if isinstance(self.given, list) else [self.given]
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        return f"message {messages[0].message_id:.80} of {messages[0].topic:.140}{more}"

    @property
    def line(self) -> str:
        """Where the call is, as far as that can be seen."""
        at = _users_frame_of(self.name)
        if at is None and inspect.iscoroutine(self.awaitable):
            frame = self.awaitable.cr_frame
            # A function of this package calls it elsewhere, and waits for its result.
            at = None if frame is None or frame.f_code in _callers else frame
        return "" if at is None else f" at {at.f_code.co_filename}:{at.f_lineno}"


class ListenerWatch:
    """Watches the calls of one client's listeners and checks, and the client's loop.

    `clock` gives seconds, and must not stop while the loop is blocked.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Fields of `ListenerCall`s by the awaitable's id: creating those would take most of the
        # time.
        self._running: dict[int, tuple[Any, ...]] = {}
        self._thread_id = 0
        self._beat_at = clock()
        self._logged: dict[tuple[str, str], float] = {}

    async def call(
        self,
        function: Callable[[Given], Awaitable[Result]],
        given: Given,
        group: str,
        slow_s: float,
        began: float,
    ) -> Result:
        """Call a listener or a check; see `ListenerCall`. Raises InvalidListener, and its
        errors.
        """
        awaitable = function(given)
        if not (type(awaitable) is CoroutineType or inspect.isawaitable(awaitable)):
            returned = f"{awaitable!r:.80}, which cannot be awaited"
            raise InvalidListener(f"its call returned {returned}")
        running = self._running
        running[id(awaitable)] = (function, given, group, slow_s, began, awaitable)
        try:
            return await awaitable
        finally:
            del running[id(awaitable)]

    async def run(self) -> None:
        self._thread_id = threading.get_ident()
        _loop_checks.add(self)
        try:
            while True:
                self._beat_at = self._clock()
                await trio.sleep(CHECK_S)
                self.log_slow_calls(trio.current_time())
        finally:
            _loop_checks.discard(self)

    def log_slow_calls(self, now: float) -> None:
        calls = [ListenerCall(*fields) for fields in self._running.values()]
        for one in sorted(calls, key=lambda call: call.began):
            took_s = now - one.began
            if took_s >= one.slow_s and self._may_log("slow", one.name, now):
                _log.warning(
                    "the listener %s of group %s has worked on %s for %.0f s%s; %d calls of this "
                    "client run",
                    one.name,
                    one.group,
                    one.work,
                    took_s,
                    one.line,
                    len(self._running),
                )

    def check_loop(self) -> None:
        """Log what blocks the loop, if it is blocked. May be called in any thread."""
        now = self._clock()
        blocked_s = now - self._beat_at - CHECK_S
        if blocked_s < BLOCKED_S:
            return
        stack = _stack(sys._current_frames().get(self._thread_id))
        user = _users_frame(stack)
        at = user or _applications_frame(stack)
        if at is None:
            return  # code of this project, trio or Python: the process gets no processor time
        name = _name(at)
        if not self._may_log("held", name, now):
            return
        _log.warning(
            "%s %s%s%s has held the loop of this client for %.1f s: no message, heartbeat or other "
            "listener of it is served meanwhile; await what takes time, or use a plain function "
            "(blocking.listener)",
            "this code" if user is None else "the listener",
            name,
            f" at {at.f_code.co_filename}:{at.f_lineno}",
            "" if at is stack[0] else f", in {_name(stack[0])},",
            blocked_s,
        )

    def _may_log(self, kind: str, name: str, now: float) -> bool:
        if now < self._logged.get((kind, name), -LOG_S) + LOG_S:
            return False
        if len(self._logged) >= _MAX_NAMES:
            self._logged.clear()
        self._logged[kind, name] = now
        return True


class _LoopChecks:
    """The thread of a process that checks all watched loops, while there are any."""

    def __init__(self) -> None:
        self._watches: set[ListenerWatch] = set()
        self._thread_of = 0  # the process that the thread runs in; 0 if there is no thread
        self._lock = threading.Lock()

    def add(self, watch: ListenerWatch) -> None:
        with self._lock:
            self._watches.add(watch)
            if self._thread_of == os.getpid():  # a forked process has no such thread
                return
            self._thread_of = os.getpid()
            try:
                threading.Thread(
                    target=self._run, name="dledger-mq-loop-checks", daemon=True
                ).start()
            except RuntimeError as error:  # blocked loops are not logged
                self._thread_of = 0
                NO_THREAD.tell(error)

    def discard(self, watch: ListenerWatch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def _run(self) -> None:
        while True:
            slept_at = time.monotonic()
            time.sleep(CHECK_S)
            is_late = time.monotonic() > slept_at + 2 * CHECK_S
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._thread_of = 0
                    return
            for watch in watches if not is_late else ():  # if late, the whole process did not run
                watch.check_loop()


_loop_checks = _LoopChecks()


def _stack(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of a thread, the innermost first."""
    found: list[FrameType] = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _users_frame(stack: list[FrameType]) -> FrameType | None:
    for frame in stack:
        if frame.f_back is not None and frame.f_back.f_code in _callers:
            return None if frame.f_code in _callers else frame
    return None


def _applications_frame(stack: list[FrameType]) -> FrameType | None:
    """Return the innermost frame of a task that is not of this project, trio or Python."""
    for frame in stack:
        if _module(frame).startswith("trio._core._run"):
            return None  # the frames below have started the loop
        if _module(frame).partition(".")[0] not in _NO_APPLICATION:
            return frame
    return None


def _users_frame_of(name: str) -> FrameType | None:
    """Return the frame of a listener that runs in some thread of this process now."""
    for frame in sys._current_frames().values():
        user = _users_frame(_stack(frame))
        if user is not None and _name(user) == name:
            return user
    return None


def _name(frame: FrameType) -> str:
    return f"{_module(frame)}.{frame.f_code.co_qualname}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


calls_users(ListenerWatch.call)
