"""The file of settings that the servers of messages share: name servers and brokers."""

from __future__ import annotations

import click

from dledger.command_line.option_sources import PREFIX, Tables, config_option
from dledger.command_line.tls_options import TLS_KEYS

# Each has a table, and reads over those of the others.
_SERVERS = ("broker", "nameserver")

_SHARED = ("group", "cluster", "peers", "nameservers", "log-format", "log-level", *TLS_KEYS)


def server_file_option(server: click.Command) -> None:
    """Give a server `--config`, and each option its environment variable, DLEDGER_BROKER_NODE."""
    name = server.name or ""
    others = tuple(one for one in _SERVERS if one != name)
    config_option(
        server,
        Tables({name: server}, _SHARED, others),
        f"{PREFIX}_{name}_config".upper(),
        f"A file with options, in TOML, in the table [{name}]; see --print-config.",
    )
