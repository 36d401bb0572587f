"""The certificates of servers and clients, and who must show one: docs/security.md. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dledger.errors import ConfigInvalid


class TlsMode(StrEnum):
    """Which connections a server takes; RocketMQ's words."""

    DISABLED = "disabled"  # plain ones
    PERMISSIVE = "permissive"  # both, told apart by the first byte
    ENFORCING = "enforcing"  # those with TLS


class ClientAuth(StrEnum):
    """Whether clients show a certificate; RocketMQ's words."""

    NONE = "none"  # they are not asked
    OPTIONAL = "optional"  # one that is shown must be believed
    REQUIRE = "require"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTlsConfig:
    """What a server shows and asks for. Files are in PEM format; a key has no password.

    Raises ConfigInvalid: certificates of clients are wanted, and no authority could check them.
    """

    certificate: Path  # of the server, followed by the intermediate ones
    key: Path
    authorities: Path | None = None  # which sign the certificates of clients
    mode: TlsMode = TlsMode.PERMISSIVE
    client_auth: ClientAuth = ClientAuth.NONE

    def __post_init__(self) -> None:
        if self.authorities is None and self.client_auth is not ClientAuth.NONE:
            raise ConfigInvalid(
                "--tls-client-auth",
                f"{self.client_auth} needs --tls-ca: who signs the certificates of clients?",
            )


def read_server_tls(
    certificate: Path | None,
    key: Path | None,
    authorities: Path | None,
    mode: str | None,
    client_auth: str | None,
) -> ServerTlsConfig | None:
    """Make the configuration of a command line; None if no certificate is given.

    With certificates, both kinds of connections are taken unless the mode says otherwise; with
    authorities, clients may show a certificate.

    Raises ConfigInvalid: only a part is given.
    """
    if certificate is None and key is None and authorities is None:
        if mode not in (None, TlsMode.DISABLED):
            raise ConfigInvalid("--tls-mode", f"{mode} needs --tls-cert and --tls-key")
        if client_auth not in (None, ClientAuth.NONE):
            raise ConfigInvalid("--tls-client-auth", f"{client_auth} needs certificates")
        return None
    if certificate is None or key is None:
        missing = "--tls-cert" if certificate is None else "--tls-key"
        raise ConfigInvalid(missing, "is missing: a server shows a certificate, and needs its key")
    if client_auth is None:
        client_auth = ClientAuth.NONE if authorities is None else ClientAuth.OPTIONAL
    return ServerTlsConfig(
        certificate=certificate,
        key=key,
        authorities=authorities,
        mode=TlsMode(mode or TlsMode.PERMISSIVE),
        client_auth=ClientAuth(client_auth),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """TLS of a client with all servers that it talks to: name servers and brokers.

    A server's certificate must be of an authority that is believed here, and name the host that was
    dialled, by DNS name or IP address. Routes name brokers by their IP addresses: give
    `server_name` if the certificates lack these. Files are in PEM format; a key has no password.

    Attributes:
        authorities: the certificates of the believed authorities; those of the system if None.
        certificate: what this client shows to servers that ask; None for nothing.
        key: its key.
        server_name: the name that every server's certificate must have, instead of the dialled one.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None
