"""Tasks that live exactly as long as an `async with` block."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVarTuple, Unpack

import trio

from dledger_mq.connection.lifetime import Lifetime

Arguments = TypeVarTuple("Arguments")


class Background:
    """A nursery whose tasks end with the block, and that leaves the block's own error as it is.

    A plain nursery would wrap an error of the block into an exception group, and the caller could
    not write `except Rejected` around a producer. An error of a task still comes as a group; it
    cancels the block, and before that the lifetime is told: everyone who waits for the object, also
    in other tasks and threads, learns of it at once.

    Args:
        lifetime: of the object whose tasks these are; None: its end is told otherwise.
        until_the_end: the tasks go on when the block is cancelled, until the block has ended. What
            ends the block may need them: a last commit needs the connections.
    """

    def __init__(self, lifetime: Lifetime | None, *, until_the_end: bool = False) -> None:
        self._manager: AbstractAsyncContextManager[trio.Nursery] = trio.open_nursery()
        self._lifetime = lifetime
        self._until_the_end = until_the_end
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> "Background":
        """Open the nursery."""
        self._nursery = await self._manager.__aenter__()
        if self._until_the_end:
            with trio.CancelScope(shield=True):
                self._nursery = await self._nursery.start(_shielded)
        return self

    async def __aexit__(self, *raised: object) -> None:
        """As `end`."""
        await self.end()

    async def end(self) -> None:
        """Cancel the tasks and wait for their end; before the end of the block, too.

        A task that cannot be interrupted, as one that waits for a thread, is waited for.
        """
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.cancel_scope.cancel()
            nursery.cancel_scope.shield = True  # what is behind this must run in a cancelled block
            await self._manager.__aexit__(None, None, None)

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery. Call it while the block is open."""
        assert self._nursery is not None
        return self._nursery

    def start_soon(
        self,
        task: Callable[[Unpack[Arguments]], Awaitable[object]],
        /,
        *arguments: *Arguments,
    ) -> None:
        """Run a task soon, unless the block has ended."""
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
    """Hold a nursery that a cancellation from outside does not reach."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()
