"""Authorities and certificates, made by the library `cryptography` while tests run."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remoting.net.tls import ClientTls, ServerTls
from remoting.net.tls_config import ClientAuth, ServerTlsConfig, Tls, TlsMode

HERE: Final = "127.0.0.1"

# What the key of an authority may be used for.
_SIGNS: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class Signed:
    """The files of a certificate."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; all its files are in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / "authority.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, folder.name)])
        made = (
            self._begun(self._name, self._key.public_key(), days=10)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: float
    ) -> x509.CertificateBuilder:
        """With what Python 3.13 demands: identifiers of the key and of the authority's."""
        now = datetime.now(UTC)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=20))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(identifier, critical=False)
        )

    def sign(
        self, name: str, *more: str, days: float = 10, names: bool = True, stem: str = ""
    ) -> Signed:
        """A certificate with these names and addresses; without `names`, with a subject alone.

        Made anew, it is written over the old one.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = self._begun(subject, key.public_key(), days)
        if names:
            shown = x509.SubjectAlternativeName([_general(one) for one in (name, *more)])
            builder = builder.add_extension(shown, critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        stem = stem or name
        files = Signed(self.folder / f"{stem}.pem", self.folder / f"{stem}-key.pem")
        files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="certificates-")


def authority(name: str = "authority") -> Authority:
    """One for all tests of a process, by its name."""
    return _made(name)


@cache
def _made(name: str) -> Authority:
    return Authority(Path(_folder().name) / name)


@cache
def signed(*names: str, by: str = "authority", days: float = 10) -> Signed:
    """A certificate of that authority with these names, made once in a process."""
    return authority(by).sign(*names, days=days, stem=f"{'+'.join(names)}-{days:g}")


def server_config(
    *,
    mode: TlsMode = TlsMode.PERMISSIVE,
    client_auth: ClientAuth = ClientAuth.NONE,
    files: Signed | None = None,
    believed: str = "authority",
) -> ServerTlsConfig:
    """For a server at 127.0.0.1, with a certificate of the authority."""
    files = files or signed("server", HERE, "localhost", "::1")
    return ServerTlsConfig(
        certificate=files.certificate,
        key=files.key,
        authorities=authority(believed).path,
        mode=mode,
        client_auth=client_auth,
    )


def server_tls(*, required: bool = False) -> ServerTls:
    """A server that takes plain connections as well, unless TLS is required."""
    return ServerTls(server_config(mode=TlsMode.ENFORCING if required else TlsMode.PERMISSIVE))


def client_config(
    shown: Signed | None = None, *, believed: str = "authority", server_name: str | None = None
) -> Tls:
    return Tls(
        authorities=authority(believed).path,
        certificate=None if shown is None else shown.certificate,
        key=None if shown is None else shown.key,
        server_name=server_name,
    )


def client_tls(
    shown: Signed | None = None, *, believed: str = "authority", server_name: str | None = None
) -> ClientTls:
    return ClientTls(client_config(shown, believed=believed, server_name=server_name))
