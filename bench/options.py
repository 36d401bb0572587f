"""The options that several benchmarks share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from bench.toolchain import BUILD
from dledger.command_line.options import Decorated, option

folder_option = option(
    "--dir",
    "folder",
    "On the disk to measure; made if missing.",
    type=click.Path(path_type=Path, file_okay=False),
    default=BUILD,
)
new_folder_option = option(
    "--dir",
    "folder",
    "On the disk to measure; default: a new folder here.",
    type=click.Path(path_type=Path),
)
build_option = option(
    "--build",
    "Where programs of others are built, once.",
    type=click.Path(path_type=Path),
    default=BUILD,
)


def json_option(what: str) -> Callable[[Decorated], Decorated]:
    """`--json PATH`, passed as `kept`; `what` is kept in it: figures or runs."""
    return option("--json", "kept", f"Keep every {what} there.", type=click.Path(path_type=Path))


def markdown_option(what: str) -> Callable[[Decorated], Decorated]:
    """`--markdown PATH`, passed as `page`; `what` is written to it: a table or several."""
    return option("--markdown", "page", f"Write the {what} there.", type=click.Path(path_type=Path))
