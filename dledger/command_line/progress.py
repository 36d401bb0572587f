"""How far a command is: a bar in a terminal, a line now and then in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Advance(Protocol):
    """Tells that so many more are done; `description` is what is at work now."""

    def __call__(self, number: int = 1, description: str | None = None) -> None:
        """Tell it."""
        ...


def counting_bar(console: Console, *before: ProgressColumn, is_shown: bool = True) -> Progress:
    """A bar of what is done so far of how many, behind other columns; it goes when it ends."""
    columns = (
        *before,
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not is_shown)


@contextmanager
def counted(
    noun: str, total: int | None, plain: Callable[[int], str | None] = lambda _done: None
) -> Iterator[Advance]:
    """Show on standard error how many of `total` are done.

    Args:
        noun: what is counted.
        total: how many there are; None if that is not known.
        plain: the line without a terminal, for so many done; None where it is not time for one.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with counting_bar(console) as bar:
            task = bar.add_task(noun, total=total)

            def advance(number: int = 1, description: str | None = None) -> None:
                bar.update(task, advance=number, description=description)

            yield advance
        return
    done = 0

    def count(number: int = 1, description: str | None = None) -> None:
        nonlocal done
        done += number
        if (line := plain(done)) is not None:
            click.echo(line, err=True)

    yield count
