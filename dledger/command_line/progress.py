"""Shows the progress of a command: a bar in a terminal, lines in a pipe."""

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
    """Counts `number` more as done; `description` is the present part of the work."""

    def __call__(self, number: int = 1, description: str | None = None) -> None: ...


def counting_bar(console: Console, *before: ProgressColumn, is_shown: bool = True) -> Progress:
    """Make a bar of the work done, after other columns. It disappears when it ends."""
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
        noun: the name of the counted things.
        total: their number; None if it is not known.
        plain: returns the line for a number of done things without a terminal, or None if no line
            is
            due.
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
