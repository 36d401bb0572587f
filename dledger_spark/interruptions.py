"""Running work that another thread can interrupt, such as a query of DuckDB."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_interrupts: Final[set[Callable[[], object]]] = set()


@contextmanager
def interrupted_by(interrupt: Callable[[], object]) -> Iterator[None]:
    """Call `interrupt`, in another thread, when a signal ends the command during the block."""
    _interrupts.add(interrupt)
    try:
        yield
    finally:
        _interrupts.discard(interrupt)


def interrupt_all() -> bool:
    """Interrupt all running work; return whether there is any."""
    running = tuple(_interrupts)
    for interrupt in running:
        interrupt()
    return bool(running)
