"""The current folder, in which modules of users lie: commands import them from there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import click

# The packages of this project. Processes that commands start import them anew, with the user's
# folder first.
PACKAGES = (
    "broker",
    "command_entry",
    "dledger",
    "dledger_mq",
    "dledger_spark",
    "jepsen_like",
    "nameserver",
    "remoting",
)
_ROOT = Path(__file__).resolve().parents[1]


def import_from_here() -> None:
    """Have modules of the current folder found before all others, as `python -m` does.

    Raises click.UsageError if a file there has the name of a module that the command needs: in the
    processes that it starts, that file would be imported in its place.
    """
    here = os.getcwd()
    for path in _in_the_way(here):
        raise click.UsageError(
            f"{path} has the name of a module that this command needs itself: rename it, or call "
            "the command in a folder without it"
        )
    if here not in sys.path:
        sys.path.insert(0, here)


def _in_the_way(folder: str) -> Iterator[str]:
    loaded = {name for name in sys.modules if "." not in name and not name.startswith("__")}
    for name in sorted({*PACKAGES, *loaded}):
        found = PathFinder.find_spec(name, [folder])
        if found is None or found.origin is None:
            continue
        there = Path(found.origin).resolve()
        file = getattr(sys.modules.get(name), "__file__", None)
        is_that = file is not None and Path(file).resolve() == there
        if not is_that and not there.is_relative_to(_ROOT / name):
            yield os.path.relpath(found.origin, folder)
