"""The options of servers that take connections with TLS from any clients."""

from __future__ import annotations

from typing import Any

import click

from dledger.command_line.options import option, options
from dledger.command_line.tls_options import TLS_KEYS, tls_options, tls_value

# RocketMQ's words.
MODES = ("disabled", "permissive", "enforcing")
CLIENT_AUTH = ("none", "optional", "require")

server_tls_options = options(
    tls_options,
    option(
        "--tls-mode",
        "Connections that clients may make: plain ones, both kinds, or those with TLS. Both kinds "
        "with --tls-cert, else plain ones.",
        type=click.Choice(MODES),
    ),
    option(
        "--tls-client-auth",
        "Whether clients show a certificate. They may with --tls-ca, else they are not asked.",
        type=click.Choice(CLIENT_AUTH),
    ),
)


def server_tls_values(context: click.Context) -> tuple[Any, ...]:
    """Return the certificate, its key, the authorities, the mode, and what clients show."""
    return (
        *(tls_value(context, key) for key in TLS_KEYS),
        context.params["tls_mode"],
        context.params["tls_client_auth"],
    )
