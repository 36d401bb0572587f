"""Names the listener that holds the loop of its client, or takes long.

A listener that blocks in its client's loop (`time.sleep`, a database's driver) stops everything
there: heartbeats, pulls, and all other listeners. One that waits long, or blocks elsewhere, keeps
one of its consumer's calls. Each is told while it lasts, and once a minute.
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

# A healthy loop comes by in milliseconds. What has held it for a second is no burst of messages.
HELD_S: Final = 1.0

# How often the loop says that it runs, and is looked at.
LOOK_S: Final = 0.5

# How often each listener is told: it may do the same with every message.
TELL_S: Final = 60.0

# Listeners that are remembered for that. Programs have few.
_MAX_NAMES: Final = 256

# What is no application's code.
_NO_APPLICATION: Final = sys.stdlib_module_names | {
    "dledger",
    "dledger_mq",
    "outcome",
    "remoting",
    "trio",
}

# Functions that call a user's: the frame above one of them is the user's.
_callers: set[CodeType] = set()


def calls_users(function: Callable[..., Any]) -> None:
    """Note that a function calls a listener or a check, in whatever thread."""
    _callers.add(function.__code__)


def called_elsewhere(caller: Caller, function: Callable[..., Any]) -> Caller:
    """Give what has a listener called in another thread or loop the listener's name."""
    calls_users(caller)
    caller.__module__ = function.__module__
    caller.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return caller


class ListenerCall(NamedTuple):
    """A call that runs.

    Attributes:
        function: the user's.
        given: what it has got.
        group: of its consumer or producer.
        slow_s: after so long it is told.
        began: on trio's clock.
        awaitable: what it returned.
    """

    function: Callable[[Any], object]
    given: list[ReceivedMessage] | ReceivedMessage
    group: str
    slow_s: float
    began: float
    awaitable: object

    @property
    def name(self) -> str:
        """The function's."""
        function = self.function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{function.__module__}.{name}"

    @property
    def work(self) -> str:
        """What it works on."""
        messages = self.given if isinstance(self.given, list) else [self.given]
        more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
        return f"message {messages[0].message_id:.80} of {messages[0].topic:.140}{more}"

    @property
    def line(self) -> str:
        """Where it is, as far as that can be seen."""
        at = _users_frame_of(self.name)
        if at is None and inspect.iscoroutine(self.awaitable):
            frame = self.awaitable.cr_frame
            # A function of this package's calls it elsewhere, and waits for its answer.
            at = None if frame is None or frame.f_code in _callers else frame
        return "" if at is None else f" at {at.f_code.co_filename}:{at.f_lineno}"


class ListenerWatch:
    """Watches the calls of one client's listeners and checks, and the client's loop.

    Args:
        clock: seconds, going on while the loop is held.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Fields of `ListenerCall`s by the awaitable's id: to make those takes longer than the rest.
        self._running: dict[int, tuple[Any, ...]] = {}
        self._thread_id = 0
        self._beat_at = clock()
        self._told: dict[tuple[str, str], float] = {}

    async def call(
        self,
        function: Callable[[Given], Awaitable[Result]],
        given: Given,
        group: str,
        slow_s: float,
        began: float,
    ) -> Result:
        """Call a listener or a check; see `ListenerCall`.

        Raises:
            InvalidListener: it returned what cannot be awaited.
            Exception: what it raises.
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
        """Watch for ever."""
        self._thread_id = threading.get_ident()
        _looking.add(self)
        try:
            while True:
                self._beat_at = self._clock()
                await trio.sleep(LOOK_S)
                self.tell_slow(trio.current_time())
        finally:
            _looking.discard(self)

    def tell_slow(self, now: float) -> None:
        """Tell the calls that take long."""
        calls = [ListenerCall(*fields) for fields in self._running.values()]
        for one in sorted(calls, key=lambda call: call.began):
            took_s = now - one.began
            if took_s >= one.slow_s and self._may_tell("slow", one.name, now):
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

    def look(self) -> None:
        """Tell what holds the loop, if something does. Called in any thread."""
        now = self._clock()
        held_s = now - self._beat_at - LOOK_S
        if held_s < HELD_S:
            return
        stack = _stack(sys._current_frames().get(self._thread_id))
        user = _users_frame(stack)
        at = user or _applications_frame(stack)
        if at is None:
            return  # this project's code, trio's or Python's: it has no processor
        name = _name(at)
        if not self._may_tell("held", name, now):
            return
        _log.warning(
            "%s %s%s%s has held the loop of this client for %.1f s: no message, heartbeat or other "
            "listener of it is served meanwhile; await what takes time, or use a plain function "
            "(blocking.listener)",
            "this code" if user is None else "the listener",
            name,
            f" at {at.f_code.co_filename}:{at.f_lineno}",
            "" if at is stack[0] else f", in {_name(stack[0])},",
            held_s,
        )

    def _may_tell(self, kind: str, name: str, now: float) -> bool:
        if now < self._told.get((kind, name), -TELL_S) + TELL_S:
            return False
        if len(self._told) >= _MAX_NAMES:
            self._told.clear()
        self._told[kind, name] = now
        return True


class _Looking:
    """The thread of a process that looks at all watched loops, while there are any."""

    def __init__(self) -> None:
        self._watches: set[ListenerWatch] = set()
        self._thread_of = 0  # the process whose thread it is; 0 while none runs
        self._lock = threading.Lock()

    def add(self, watch: ListenerWatch) -> None:
        with self._lock:
            self._watches.add(watch)
            if self._thread_of == os.getpid():  # a thread does not follow into a forked process
                return
            self._thread_of = os.getpid()
            try:
                threading.Thread(target=self._look, name="dledger-mq-look", daemon=True).start()
            except RuntimeError as error:  # what holds a loop is not told
                self._thread_of = 0
                NO_THREAD.tell(error)

    def discard(self, watch: ListenerWatch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def _look(self) -> None:
        while True:
            slept_at = time.monotonic()
            time.sleep(LOOK_S)
            is_late = time.monotonic() > slept_at + 2 * LOOK_S
            with self._lock:
                watches = list(self._watches)
                if not watches:
                    self._thread_of = 0
                    return
            for watch in watches if not is_late else ():  # else the whole process was kept from it
                watch.look()


_looking = _Looking()


def _stack(frame: FrameType | None) -> list[FrameType]:
    """The frames of a thread, the innermost first."""
    found: list[FrameType] = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _users_frame(stack: list[FrameType]) -> FrameType | None:
    """The frame of a listener on a stack."""
    for frame in stack:
        if frame.f_back is not None and frame.f_back.f_code in _callers:
            return None if frame.f_code in _callers else frame
    return None


def _applications_frame(stack: list[FrameType]) -> FrameType | None:
    """The innermost frame of a loop's task that is neither this project's, trio's nor Python's."""
    for frame in stack:
        if _module(frame).startswith("trio._core._run"):
            return None  # what is below has started the loop
        if _module(frame).partition(".")[0] not in _NO_APPLICATION:
            return frame
    return None


def _users_frame_of(name: str) -> FrameType | None:
    """The frame of a listener that runs in some thread of this process now."""
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
