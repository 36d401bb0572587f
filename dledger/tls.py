"""Mutual TLS between members, and between members and tools.

Everybody shows a certificate that one of the group's authorities signed. A member's certificate
names its node id as a DNS name: whoever dials a member checks that, and so does a member whom
another one calls. Nothing older than TLS 1.3: all parties are ours.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trio

from dledger.errors import ConfigInvalid

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsConfig:
    """Files in PEM format. A key with a password is not read: nobody is there to type it."""

    certificate: Path  # this member's, with those between it and the authority behind it
    key: Path
    authorities: Path  # whose certificates are believed


class GroupTls:
    """The contexts of one node or tool. Raises ConfigInvalid for files that cannot be used."""

    def __init__(self, config: TlsConfig) -> None:
        self.config = config
        self._client, self._server = _contexts(config)

    def reload(self) -> None:
        """Read the files again. Connections that are open keep what they began with.

        Raises ConfigInvalid, and goes on with what was read before.
        """
        self._client, self._server = _contexts(self.config)

    def dialled(self, stream: trio.SocketStream, node_id: str) -> trio.SSLStream[trio.SocketStream]:
        """A connection to a member that must prove to be `node_id`."""
        return trio.SSLStream(stream, self._client, server_hostname=node_id)

    def accepted(self, stream: trio.SocketStream) -> trio.SSLStream[trio.SocketStream]:
        """A connection of somebody who must prove to be of the group."""
        return trio.SSLStream(stream, self._server, server_side=True)


def names_shown(stream: trio.SSLStream[trio.SocketStream]) -> frozenset[str]:
    """The DNS names in the certificate that the other side has shown."""
    certificate = stream.getpeercert() or {}
    return frozenset(name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS")


def _contexts(config: TlsConfig) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    try:
        client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(config.authorities))
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(config.authorities))
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(
            "tls.authorities", f"{config.authorities} cannot be used: {error}"
        ) from error
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (client, server):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_cert_chain(config.certificate, config.key, password=_no_password)
        except (OSError, ssl.SSLError, _KeyHasPassword) as error:
            raise ConfigInvalid(
                "tls.certificate, tls.key",
                f"{config.certificate} and {config.key} cannot be used: {error}",
            ) from error
    return client, server


class _KeyHasPassword(Exception):
    pass


def _no_password() -> str:
    raise _KeyHasPassword("the key has a password; store it without one, readable by nobody else")
