"""What runs tasks: a nursery of trio's, or one that watches over it."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVarTuple, Unpack

Arguments = TypeVarTuple("Arguments")


class StartsTasks(Protocol):
    """Runs tasks in the background."""

    def start_soon(
        self,
        task: Callable[[Unpack[Arguments]], Awaitable[object]],
        /,
        *arguments: *Arguments,
    ) -> None:
        """Run a task soon."""
        ...
