"""The folder that `dledger-mq certificates` makes, and `up` and clients use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_mq.errors import CertificatesRefused
from remoting.net.tls_config import Tls

AUTHORITY: Final = "authority"
NAMESERVER: Final = "nameserver"
CLIENT: Final = "client"

# The names of each machine for itself.
HERE: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    """Certificates and their keys, by the names of members, of the name server and of clients."""

    path: Path

    def certificate(self, name: str) -> Path:
        return self.path / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.path / f"{name}-key.pem"

    def server_options(self, name: str) -> tuple[str, ...]:
        """Return the options of a server that takes only connections with TLS."""
        return (
            *("--tls-cert", str(self.certificate(name)), "--tls-key", str(self.key(name))),
            *("--tls-ca", str(self.certificate(AUTHORITY)), "--tls-mode", "enforcing"),
        )

    def proxy_options(self) -> tuple[str, ...]:
        """Return the options of a proxy about its connections with brokers."""
        return (
            *("--brokers-ca", str(self.certificate(AUTHORITY))),
            *("--brokers-cert", str(self.certificate(CLIENT))),
            *("--brokers-key", str(self.key(CLIENT))),
        )

    def client(self) -> Tls:
        return Tls(
            authorities=self.certificate(AUTHORITY),
            certificate=self.certificate(CLIENT),
            key=self.key(CLIENT),
        )

    def check(self, names: Sequence[str]) -> None:
        """Check that the files are there. Raises CertificatesRefused, which names one."""
        wanted = [self.certificate(AUTHORITY)]
        for name in names:
            wanted += [self.certificate(name), self.key(name)]
        for path in wanted:
            if not path.is_file():
                raise CertificatesRefused(
                    str(self.path),
                    f"it has no {path.name}: `dledger-mq certificates` makes such a folder",
                )
