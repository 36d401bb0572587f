"""The options that several benchmarks share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bench.toolchain import BUILD

# What click decorates: the function of a command, or the command itself.
Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=BUILD,
    show_default=True,
    help="On the disk to measure; made if missing.",
)
new_folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="On the disk to measure; default: a new folder here.",
)
build_option = click.option(
    "--build",
    type=click.Path(path_type=Path),
    default=BUILD,
    show_default=True,
    help="Where programs of others are built, once.",
)


def json_option(what: str) -> Callable[[Decorated], Decorated]:
    """`--json PATH`, passed as `kept`; `what` is kept in it: figures or runs."""
    return click.option(
        "--json", "kept", type=click.Path(path_type=Path), help=f"Keep every {what} there."
    )


def markdown_option(what: str) -> Callable[[Decorated], Decorated]:
    """`--markdown PATH`, passed as `page`; `what` is written to it: a table or several."""
    return click.option(
        "--markdown", "page", type=click.Path(path_type=Path), help=f"Write the {what} there."
    )
