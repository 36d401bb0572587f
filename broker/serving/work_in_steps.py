"""Work that is too long for one turn of the loop, as features see it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class WorkInSteps(Protocol):
    """Takes steps between other work. `remoting.net.client_work.ClientWork` does.

    A step takes a millisecond at most; a generator yields behind each. `what` names the work in
    the log, if it fails.
    """

    def later(self, what: str, steps: Iterator[object]) -> None:
        """Take `steps` one by one."""
        ...

    def begin(self, what: str, steps: Iterator[object]) -> None:
        """Take steps now, for as long as a turn, and what is left as `later` does."""
        ...

    def each(self, what: str, items: Iterable[T], do: Callable[[T], None]) -> None:
        """Call `do` for each of `items`, as `begin`. An error harms its item alone."""
        ...
