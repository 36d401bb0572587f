"""The options that several benchmarks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from bench.toolchain import BUILD
from dledger.command_line.options import Decorated, NumberRange, option

_A_DAY_S = 86_400.0
# How long something is measured, and how long before that nothing is.
SECONDS: Final = NumberRange(0.0, _A_DAY_S, min_open=True)
WARM_UP: Final = NumberRange(0.0, _A_DAY_S)
COUNT: Final = click.IntRange(1)

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


def chosen_keys(name: str, text: str, known: Sequence[str], word: str) -> list[str]:
    """Return the keys in `text`, in the order of `known`; `word` is `all` or `none`.

    Raises click.UsageError.
    """
    wanted = {"all": known, "none": ()}[word] if text == word else text.split(",")
    for key in wanted:
        if key not in known:
            raise click.UsageError(f"{name} {key!r}: give {word}, or of {', '.join(known)}")
    return [key for key in known if key in wanted]


def json_option(what: str) -> Callable[[Decorated], Decorated]:
    """`--json PATH`, passed as `kept`, for every `what`."""
    return option("--json", "kept", f"Keep every {what} there.", type=click.Path(path_type=Path))


def markdown_option(what: str) -> Callable[[Decorated], Decorated]:
    """`--markdown PATH`, passed as `page`, for the `what`."""
    return option("--markdown", "page", f"Write the {what} there.", type=click.Path(path_type=Path))
