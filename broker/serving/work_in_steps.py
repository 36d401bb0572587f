"""Work that is too long for one turn of the loop, as features see it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class WorkInSteps(Protocol):
    """Runs steps between other work; see `remoting.net.client_work.ClientWork`, which implements
    it.

    A step takes a millisecond at most; a generator yields after each. `what` names the work in the
    log if it fails.
    """

    def later(self, what: str, steps: Iterator[object]) -> None: ...

    def begin(self, what: str, steps: Iterator[object]) -> None:
        """Take steps now until the turn is over, and the others as `later` does."""

    def each(self, what: str, items: Iterable[T], do: Callable[[T], None]) -> None:
        """Call `do` for each of `items`, as `begin` does. An error affects its item alone."""
