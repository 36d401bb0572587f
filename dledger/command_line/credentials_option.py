"""The option that names the user of a command at the port of the log."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.command_line.options import FILE, given, kept_option
from dledger.network.private_file import read_credentials
from dledger.wire.proof import Credentials

CREDENTIALS = "credentials"

credentials_option = kept_option(
    f"--{CREDENTIALS}",
    "A file with access_key and secret_key of a user, for a group that asks for users; see "
    "docs/security.md.",
    type=FILE,
    envvar="DLEDGER_CREDENTIALS",
    show_envvar=True,
)


def credentials_path(context: click.Context | None = None) -> Path | None:
    path: Path | None = given(f"--{CREDENTIALS}", context)
    return path


def given_credentials() -> Credentials | None:
    """Return the user given to this command. Raises ConfigInvalid: the file cannot be used."""
    path = credentials_path()
    return None if path is None else read_credentials(path)
