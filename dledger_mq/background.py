"""Tasks that live exactly as long as an `async with` block."""

from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio


class Background:
    """A nursery whose tasks end with the block, and that leaves the block's own error as it is.

    A plain nursery would wrap an error of the block into an exception group, and the caller could
    not write `except Rejected` around a producer. An error of a task still comes as a group.

    Args:
        until_the_end: the tasks go on when the block is cancelled, until the block has ended. What
            ends the block may need them: a last commit needs the connections.
    """

    def __init__(self, *, until_the_end: bool = False) -> None:
        self._manager: AbstractAsyncContextManager[trio.Nursery] = trio.open_nursery()
        self._until_the_end = until_the_end
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> trio.Nursery:
        """Open the nursery."""
        self._nursery = await self._manager.__aenter__()
        if self._until_the_end:
            with trio.CancelScope(shield=True):
                self._nursery = await self._nursery.start(_shielded)
        return self._nursery

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel the tasks and wait for their end."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
            await self._manager.__aexit__(None, None, None)


async def _shielded(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """Hold a nursery that a cancellation from outside does not reach."""
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()
