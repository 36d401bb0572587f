"""Refuses to listen for other machines without protection, unless that is asked for."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from dledger.command_line.options import flag

logger = logging.getLogger(__name__)

Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")

insecure_option = flag(
    "--insecure",
    "Listen for other machines without TLS and access control: whoever reaches the port may do "
    "everything.",
)
insecure_log_option = flag(
    "--insecure",
    "Listen for other machines without TLS and users: whoever reaches the port may do everything.",
)


def is_only_here(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


TLS_OR_USERS: Final = (
    "neither TLS nor users that are asked for: give --tls-cert, --tls-key and --tls-ca, or --users"
)
TLS_OR_ACCESS_OF_LOG: Final = (
    "neither TLS nor users that the port of the log asks for: give --tls-cert, --tls-key and "
    "--tls-ca, or --access with --log-users enforcing"
)
TLS_OR_ACCESS: Final = (
    "neither TLS nor access control: give --tls-cert, --tls-key and --tls-ca, or --access"
)


def problem_of_open_address(
    host: str, lacks: str = TLS_OR_ACCESS, *, is_insecure: bool
) -> str | None:
    """Return what is wrong with an address that nothing protects; None if it may be used.

    A line of the log warns of one that may.
    """
    if is_only_here(host):
        return None
    if not is_insecure:
        return f"other machines reach {host}, and there is {lacks}, or say --insecure"
    logger.warning(
        "--insecure: other machines reach %s, and whoever does may read, change and delete "
        "everything",
        host,
    )
    return None
