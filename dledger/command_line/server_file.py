"""The file of settings that the servers of messages share: name servers and brokers."""

from __future__ import annotations

import click

from dledger.command_line.option_sources import PREFIX, Tables, config_option, options_of
from dledger.command_line.tls_options import TLS_KEYS

# Each has a table, and reads over those of the others.
_SERVERS = ("broker", "nameserver", "proxy")

# A name server reads over those that only brokers have.
_SHARED = ("group", "cluster", "peers", "nameservers", "log-format", "log-level")


def server_file_option(server: click.Command) -> None:
    """Give a server `--config`, and each option its environment variable, DLEDGER_BROKER_NODE."""
    name = server.name or ""
    others = tuple(one for one in _SERVERS if one != name)
    # A server without TLS must not read over certificates.
    certificates = tuple(key for key in TLS_KEYS if key in options_of(server))
    config_option(
        server,
        Tables({name: server}, (*_SHARED, *certificates), others),
        f"{PREFIX}_{name}_config".upper(),
        f"A file with options, in TOML, in the table [{name}]; see --print-config.",
    )
