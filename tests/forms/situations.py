"""Where calls come from and what happens to them: each situation carries out every call there."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple

import trio

import dledger
from dledger.loop_thread import LoopThread
from dledger_mq import NoReply
from tests.forms.carrying_out import LIMIT_S, Hangs, finish, finish_soon, in_thread, outcomes
from tests.forms.form_classes import ASYNCIO, BLOCKING, TRIO
from tests.forms.opened_forms import Call, OpenedForm
from tests.forms.real_servers import BREAKS, held

# How long calls are under way before they are cancelled.
_UNDER_WAY_S: Final = 0.1

# Unanswered calls end by their own time limits. The longest one, of an index query, is 30 s.
_DEAD_LIMIT_S: Final = 45.0

# More values than any iterator of the matrix has while nobody appends.
_MANY: Final = 100_000


class Outcome(NamedTuple):
    """What became of a call: the error, or None if it has returned."""

    call: Call
    error: BaseException | None


def told(
    calls: Sequence[Call], begun: Sequence[Future[Any]], limit_s: float = LIMIT_S
) -> list[Outcome]:
    return list(map(Outcome, calls, outcomes(begun, limit_s)))


def one_by_one(form: OpenedForm, calls: Iterator[Call]) -> list[Outcome]:
    found: list[Outcome] = []
    for call in calls:
        found.append(Outcome(call, *outcomes([form.begin(call.make)])))
        if isinstance(found[-1].error, Hangs):
            break  # more would only take longer
    return found


def called(form: OpenedForm) -> list[Outcome]:
    """As they are meant."""
    return one_by_one(form, form.calls())


# --- cancelled ------------------------------------------------------------------------------------


class Interrupted(BaseException):
    """What a signal handler raises, as that of Ctrl-C does."""


def cancelled(form: OpenedForm) -> list[Outcome]:
    """While they wait for answers that do not come."""
    with form.servers.silent():
        if form.form == BLOCKING:
            with held_all(form.loops):
                return [Outcome(call, interrupted(call)) for call in form.calls(waiting=True)]
        calls = list(form.calls(waiting=True))
        work = cancel_in_trio if form.form == TRIO else cancel_in_asyncio
        return told(calls, [form.run(partial(work, call)) for call in calls])


def cancelled_before_they_began(form: OpenedForm) -> list[Outcome]:
    """While their loop does something else."""
    assert form.form == ASYNCIO
    calls = list(form.calls())
    with held_all(form.loops):
        begun = [form.run(partial(cancel_in_asyncio, call)) for call in calls]
        time.sleep(2 * _UNDER_WAY_S)
    return told(calls, begun)


@contextmanager
def held_all(loops: Sequence[LoopThread[Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for loop in loops:
            stack.enter_context(held(loop))
        yield


async def cancel_in_asyncio(call: Call) -> None:
    task = asyncio.ensure_future(finish_soon(call.make, _MANY))
    await asyncio.sleep(_UNDER_WAY_S)
    task.cancel()
    await asyncio.wait({task})
    await task


async def cancel_in_trio(call: Call) -> None:
    with trio.CancelScope(deadline=trio.current_time() + _UNDER_WAY_S) as scope:
        await finish_soon(call.make, _MANY)
    if scope.cancelled_caught:
        raise CancelledError


def main_thread_id() -> int:
    """Signals reach the main thread, which must be this one."""
    main = threading.main_thread()
    assert threading.current_thread() is main
    assert main.ident is not None
    return main.ident


def interrupted(call: Call) -> BaseException | None:
    """What a call raises whose wait a signal handler ends; Ctrl-C does the same."""
    main = main_thread_id()
    called, ended = threading.Event(), threading.Event()

    def interrupt(_number: int, frame: FrameType | None) -> None:
        # Where it waits, and where it takes and gives back the locks of its wait.
        if frame is not None and frame.f_code.co_filename == threading.__file__:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            raise Interrupted

    def tell() -> None:
        called.wait()  # the start of this thread waits in `threading`, too
        while not ended.wait(0.002):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        called.set()
        finish(call.make, _MANY)
    except BaseException as error:
        return error
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # before any frame of `threading`
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    return None


# --- timed out ------------------------------------------------------------------------------------


def timed_out(form: OpenedForm) -> list[Outcome]:
    """While nobody answers."""
    with form.servers.silent():
        if form.form == BLOCKING:
            calls = [c for c in form.calls() if not (c.is_local or c.waits_on_purpose)]
            return told(calls, [form.begin(call.make) for call in calls])
        calls = list(form.calls(waiting=True))
        work = time_out_in_trio if form.form == TRIO else time_out_in_asyncio
        return told(calls, [form.run(partial(work, call)) for call in calls])


async def time_out_in_asyncio(call: Call) -> None:
    await asyncio.wait_for(finish_soon(call.make, _MANY), _UNDER_WAY_S)


async def time_out_in_trio(call: Call) -> None:
    with trio.fail_after(_UNDER_WAY_S):
        await finish_soon(call.make, _MANY)


# --- elsewhere ------------------------------------------------------------------------------------


def in_a_callback(form: OpenedForm) -> list[Outcome]:
    """In a callback of a future, which runs in the thread of the loop."""
    found = []
    for call in form.calls():
        loop = form.loop_of(call)
        if loop is None or (form.form == TRIO and call.needs_task):
            continue
        future: Future[Any] = Future()
        answered: Future[None] = Future()
        answered.add_done_callback(partial(tell_attempt, form, call, future))
        loop.soon(partial(answered.set_result, None))
        try:
            error, after = future.result(LIMIT_S)
        except TimeoutError:
            error, after = Hangs(f"{call} holds its loop"), None
        if after is not None:
            (error,) = outcomes([after])
        found.append(Outcome(call, error))
        if isinstance(error, Hangs):
            break  # and so do all others of this loop
    return found


def tell_attempt(form: OpenedForm, call: Call, to: Future[Any], _answered: object) -> None:
    to.set_result(attempt(form, call))


def attempt(form: OpenedForm, call: Call) -> tuple[BaseException | None, Future[Any] | None]:
    """What a call raises, or the future that it returns."""
    try:
        if form.form == ASYNCIO:
            asyncio.run(finish_soon(call.make))
        else:
            result = call.make()
            if isinstance(result, Future):
                return None, result
            finish(lambda: result)
    except BaseException as error:
        return error, None
    return None, None


def in_a_signal_handler(form: OpenedForm) -> list[Outcome]:
    """In a signal handler, while the main thread waits for a call of the same object."""
    found = []
    for call in form.calls():
        loop = form.loop_of(call)
        if loop is not None:
            found.append(Outcome(call, handled(form.form, loop, call)))
    return found


def handled(form: str, loop: LoopThread[Any], call: Call) -> BaseException | None:
    main = main_thread_id()
    done = threading.Event()
    ended: list[BaseException | None] = []

    def handle(_number: int, _frame: FrameType | None) -> None:
        try:
            take(form, call)
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)
        done.set()

    async def wait() -> None:
        while not done.is_set():  # noqa: ASYNC110 - a signal handler sets it
            await trio.sleep(0.001)

    before = (
        signal.signal(signal.SIGUSR1, handle),
        signal.signal(signal.SIGALRM, CallAtLine.too_late),
    )
    waiting = loop.submit(wait)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    threading.Timer(0.002, signal.pthread_kill, (main, signal.SIGUSR1)).start()
    try:
        waiting.result()
    except Hangs as error:
        ended.append(error)
    finally:
        done.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGUSR1, before[0])
        signal.signal(signal.SIGALRM, before[1])
    return ended[0]


def interrupted_at_lines(call: Call, step: int) -> tuple[int, list[BaseException]]:
    """How many lines a call runs in this thread, and what a signal handler raises, or its first
    call has for an outcome, that makes the same call at each of them in turn, or at one of `step`.
    """
    call = unhurried(call)
    errors: list[BaseException] = []
    line = 0
    while True:
        line += step
        handler = CallAtLine(call, line)
        signal.signal(signal.SIGALRM, handler.too_late)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        sys.settrace(handler.trace)
        try:
            begun = call.make()
        except Hangs as error:
            return line, [error]
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_REAL, 0)
        errors += [one for one in outcomes([begun]) if one is not None and not expected(one)]
        if handler.is_left or errors:
            return line, errors


def unhurried(call: Call) -> Call:
    """Give the call time for a busy machine, unless it is one that waits until its time is up."""
    make: Callable[..., Any] = call.make
    if call.name == "ask_soon" or "timeout_s" not in getattr(make, "keywords", {}):
        return call
    return call._replace(make=partial(make, timeout_s=LIMIT_S / 2))


def expected(error: BaseException) -> bool:
    """Nobody replies to a question of the matrix."""
    return isinstance(error, NoReply)


class CallAtLine:
    """Makes a call at one line of another, as a signal handler does."""

    def __init__(self, call: Call, line: int) -> None:
        self._call = call
        self.is_left = True
        self._left = line

    def trace(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line" and self.is_left:
            self._left -= 1
            if not self._left:
                self.is_left = False
                sys.settrace(None)
                self._call.make()
        return self.trace if self.is_left else None

    @staticmethod
    def too_late(_number: int, frame: FrameType | None) -> None:
        raise Hangs("".join(traceback.format_stack(frame)))


def in_another_loop(form: OpenedForm) -> list[Outcome]:
    """In loops of other threads, all at once."""
    calls = list(form.calls())
    return told(calls, [in_thread(partial(take, form.form, call)) for call in calls])


def after_the_end(form: OpenedForm) -> list[Outcome]:
    """After the end of their blocks."""
    calls = list(form.calls(waiting=True))
    form.ends.close()
    return one_by_one(form, iter(calls))


def take(form: str, call: Call) -> None:
    if form == TRIO:
        trio.run(finish_soon, call.make)
    elif form == ASYNCIO:
        asyncio.run(finish_soon(call.make))
    else:
        finish(call.make)


def in_a_forked_process(form: OpenedForm) -> list[Outcome]:
    """In a process that was forked while they were open."""
    calls = list(form.calls())
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        process = os.fork()
    if process == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump([error for _, error in in_another_loop(form)], pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        future = in_thread(partial(pickle.load, pipe))
        try:
            errors = future.result(2 * LIMIT_S)
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return list(map(Outcome, calls, errors))


# --- something ends -------------------------------------------------------------------------------


def begun(form: OpenedForm) -> tuple[list[Call], list[Future[Any]]]:
    """Calls that are under way."""
    calls = list(form.calls(waiting=True))
    futures = [form.begin(call.make, _MANY) for call in calls]
    time.sleep(_UNDER_WAY_S)
    return calls, futures


def while_their_block_ends(form: OpenedForm) -> list[Outcome]:
    """While the block of the object ends, by another task or thread."""
    calls, futures = begun(form)
    form.ends.close()
    return told(calls, futures)


def while_the_member_fails(form: OpenedForm) -> list[Outcome]:
    """While the member that runs here has to stop by itself, since its machine has raised."""
    calls, futures = begun(form)
    node = form.objects["Node"]
    outcomes([form.begin(partial(node.append, BREAKS))])
    with suppress(dledger.MachineFailed, CancelledError):
        form.ends.close()
    return told(calls, futures)


def while_the_servers_die(form: OpenedForm) -> list[Outcome]:
    """While brokers, name servers and members elsewhere die, and stay away."""
    begun_calls = [pair for pair in zip(*begun(form), strict=True) if not pair[0].is_local]
    assert form.servers.loop is not None
    form.servers.loop.close()
    bounded = [pair for pair in begun_calls if not pair[0].waits_on_purpose]
    found = told([call for call, _ in bounded], [ended for _, ended in bounded], _DEAD_LIMIT_S)
    form.ends.close()
    waiting = [pair for pair in begun_calls if pair[0].waits_on_purpose]
    return found + told([call for call, _ in waiting], [ended for _, ended in waiting])
