"""The options that name the group of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from dledger.commands.tls_options import tls_options
from dledger.config import parse_peers
from dledger.errors import ConfigInvalid
from dledger.local_group import load_group

F = TypeVar("F", bound=Callable[..., Any])


def group_options(function: F) -> F:
    """The options that say which group to talk to, and with which certificate (`given_tls`)."""
    for option in (
        click.option(
            "--dir",
            "folder",
            type=click.Path(path_type=Path),
            help="A folder made by `dledger group`.",
        ),
        click.option("--peers", help="Members, as n0=127.0.0.1:20911,n1=..."),
        click.option("--group", default="group", show_default=True, help="Name of the group."),
    ):
        function = option(function)
    return tls_options(function)


def members_of(folder: Path | None, peers: str | None, group: str) -> tuple[str, Mapping[str, str]]:
    """The group's name, and the members that the options name. Raises ConfigInvalid."""
    if folder is not None:
        return load_group(folder)
    if peers:
        return group, parse_peers("--peers", peers)
    raise ConfigInvalid(
        "--dir or --peers", "say which group: a folder of `dledger group`, or its members"
    )
