"""The `async with` block of a producer, consumer or client, and its tasks."""

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, TypeVarTuple, Unpack

import trio

from dledger.home_loop import HomeLoop
from dledger.trio_only import require_trio
from dledger_mq.errors import ClientClosed, OpenedTwice, OtherLoop

_log = logging.getLogger(__name__)


class Lifetime:
    """Whether an object is open. It can be opened once, and may end early by an error of its tasks.

    Args:
        what: the object, for errors: "producer".
        name: the name of its class.
        form: the function that opens it in `dledger_mq.blocking` and `for_asyncio`, or other
            advice.
        group: its group, for the log.
        client: of the client that it uses. The end of the client is its own end.

    Attributes:
        failure: the error that ended the object or its client; None at the end of the block.
    """

    def __init__(
        self,
        what: str,
        name: str,
        form: str,
        *,
        group: str = "",
        client: "Lifetime | None" = None,
    ) -> None:
        self._what = what
        self._name = name
        self._form = form
        self._group = group
        self._client = client
        self._was_opened = False
        self._is_open = False
        self.failure: BaseException | None = None
        self._home: HomeLoop | None = None
        self._waits: set[trio.CancelScope] = set()
        self._users: set[Lifetime] = set()  # open objects whose client this is

    def open(self) -> None:
        """Begin the block. Raises OpenedTwice; NotInTrio: no trio loop runs here."""
        require_trio(self._name, "dledger_mq", self._form)
        if self._was_opened:
            raise OpenedTwice(self._what)
        self._was_opened = self._is_open = True
        self._home = HomeLoop(lambda: OtherLoop(self._what))
        if self._client is not None:
            self._client._users.add(self)
            self.failure = self._client.failure

    def close(self) -> None:
        """End the block, also one that could not begin."""
        self._is_open = False
        if self._home is not None:
            self._home.end()
        self._end_waits()
        if self._client is not None:
            self._client._users.discard(self)

    def fail(self, error: BaseException) -> None:
        """End the object by an error of a task, unless the task was only cancelled."""
        cause = _without_cancellations(error)
        if cause is None or self.failure is not None:
            return
        if not isinstance(cause, KeyboardInterrupt):  # which ends the program, and is no fault
            _log.error("the %s %s ends by an error", self._what, self._group, exc_info=cause)
        self._ended_by(cause)
        self._end_waits()

    def check(self) -> None:
        """Raises ClientClosed: the block is not running; OtherLoop: it runs in another loop."""
        self.check_open()
        self.check_loop()

    def check_open(self) -> None:
        """Check that the block is running, in any loop. Raises ClientClosed."""
        if not self._is_open or self.failure is not None:
            raise self.closed()

    def check_loop(self) -> None:
        """Check that this is the loop of the block, if it was opened. Raises OtherLoop."""
        if self._home is not None:
            self._home.check()

    def closed(self) -> ClientClosed:
        """Return the error of calls outside the block; its cause is `failure`."""
        failure = self.failure
        error = ClientClosed(self._what, "" if failure is None else repr(failure)[:300])
        error.__cause__ = failure
        return error

    def _ended_by(self, cause: BaseException) -> None:
        self.failure = self.failure or cause
        for user in self._users:
            user._ended_by(cause)

    def _end_waits(self) -> None:
        for scope in self._waits:
            scope.cancel()
        for user in self._users:
            user._end_waits()


class _HasLifetime(Protocol):
    @property
    def _lifetime(self) -> Lifetime: ...


Owner = TypeVar("Owner", bound=_HasLifetime)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def during_block(
    method: Callable[Concatenate[Owner, Parameters], Awaitable[Result]],
) -> Callable[Concatenate[Owner, Parameters], Coroutine[Any, Any, Result]]:
    """Make a method that runs during the block only, and that the object's end interrupts.

    It raises ClientClosed, whose cause is the error that ended the object, if one did, and
    OtherLoop in another trio loop.
    """

    @functools.wraps(method)
    async def call(
        owner: Owner, /, *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        lifetime = owner._lifetime
        lifetime.check()
        with trio.CancelScope() as scope:
            lifetime._waits.add(scope)
            try:
                return await method(owner, *arguments, **named)
            finally:
                lifetime._waits.discard(scope)
        raise lifetime.closed()

    return call


def _without_cancellations(error: BaseException) -> BaseException | None:
    """Return an error without cancellations, and without the group around a single error."""
    if isinstance(error, trio.Cancelled):
        return None
    if not isinstance(error, BaseExceptionGroup):
        return error
    rest: BaseException | None = error.split(trio.Cancelled)[1]
    while isinstance(rest, BaseExceptionGroup) and len(rest.exceptions) == 1:
        rest = rest.exceptions[0]
    return rest


Arguments = TypeVarTuple("Arguments")


class Background:
    """A nursery whose tasks end with the block, and that leaves the block's own error as it is.

    A plain nursery would wrap an error of the block into an exception group, and the caller could
    not write `except Rejected` around a producer. An error of a task still comes as a group and
    cancels the block; before that it ends the lifetime, so that calls that wait for the object in
    other tasks and threads learn of it at once.

    Args:
        lifetime: of the object whose tasks these are; None: errors end no lifetime.
        until_the_end: the tasks run on when the block is cancelled, until the block has ended: a
            last commit needs the connections.
    """

    def __init__(self, lifetime: Lifetime | None, *, until_the_end: bool = False) -> None:
        self._manager: AbstractAsyncContextManager[trio.Nursery] = trio.open_nursery()
        self._lifetime = lifetime
        self._until_the_end = until_the_end
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> "Background":
        self._nursery = await self._manager.__aenter__()
        if self._until_the_end:
            with trio.CancelScope(shield=True):
                self._nursery = await self._nursery.start(_shielded)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Cancel the tasks and wait for them, perhaps before the end of the block.

        A task that cannot be interrupted, such as one that waits for a thread, is waited for.
        """
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.cancel_scope.cancel()
            nursery.cancel_scope.shield = True  # in a cancelled block, too
            await self._manager.__aexit__(None, None, None)

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery, while the block is open."""
        assert self._nursery is not None
        return self._nursery

    def start_soon(
        self,
        task: Callable[[Unpack[Arguments]], Awaitable[object]],
        /,
        *arguments: *Arguments,
    ) -> None:
        """Start a task, unless the block has ended."""
        if self._nursery is not None:
            self._nursery.start_soon(self._run, task, arguments)

    async def _run(
        self, task: Callable[..., Awaitable[object]], arguments: tuple[object, ...]
    ) -> None:
        try:
            await task(*arguments)
        except BaseException as error:
            if self._lifetime is not None:
                self._lifetime.fail(error)
            raise


async def _shielded(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Hold open a nursery that a cancellation from outside does not reach."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()
