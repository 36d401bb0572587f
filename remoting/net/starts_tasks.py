"""A nursery of trio's, or an object that watches over one."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVarTuple, Unpack

Arguments = TypeVarTuple("Arguments")


class StartsTasks(Protocol):
    def start_soon(
        self,
        task: Callable[[Unpack[Arguments]], Awaitable[object]],
        /,
        *arguments: *Arguments,
    ) -> None: ...
