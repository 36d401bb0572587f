"""The options that name the group of a command."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import click

from dledger.client.group_client import GroupClient
from dledger.client.remote_log import RemoteLog, connect
from dledger.command_line.credentials_option import credentials_option, given_credentials
from dledger.command_line.options import given, kept_option, options
from dledger.command_line.tls_options import given_tls, tls_options
from dledger.config import parse_peers
from dledger.errors import ConfigInvalid
from dledger.local_group import load_group
from dledger.network.tls_config import TlsConfig
from dledger.sessions.session import DEFAULT_TIMEOUT_S
from dledger.wire.proof import Credentials

# The options for the group, the certificate and the user; `given_group` reads them.
group_options = options(
    tls_options,
    credentials_option,
    kept_option("--group", "Name of the group.", default="group"),
    kept_option("--peers", "Members, as n0=127.0.0.1:20911,n1=..."),
    kept_option("--dir", "A folder made by `dledger group`.", type=click.Path(path_type=Path)),
)


class NamedGroup(NamedTuple):
    name: str
    members: Mapping[str, str]
    tls: TlsConfig | None
    credentials: Credentials | None

    def client(self) -> GroupClient:
        return GroupClient(self.name, self.members, self.tls, self.credentials)

    def log(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> AbstractAsyncContextManager[RemoteLog]:
        return connect(
            self.members,
            group=self.name,
            tls=self.tls,
            credentials=self.credentials,
            timeout_s=timeout_s,
        )


def given_group() -> NamedGroup:
    """Return the group that the options name. Raises ConfigInvalid."""
    folder, peers = given("--dir"), given("--peers")
    if folder is not None:
        return NamedGroup(*load_group(folder), given_tls(), given_credentials())
    if peers:
        members = parse_peers("--peers", peers)
        return NamedGroup(given("--group"), members, given_tls(), given_credentials())
    raise ConfigInvalid(
        "--dir or --peers", "say which group: a folder of `dledger group`, or its members"
    )
