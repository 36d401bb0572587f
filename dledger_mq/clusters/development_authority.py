"""An authority of one's own, and certificates that it signs: for development, and as an example."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from dledger_mq.clusters.certificate_folder import (
    AUTHORITY,
    CLIENT,
    HERE,
    NAMESERVER,
    CertificateFolder,
)
from dledger_mq.errors import CertificatesRefused

AUTHORITY_DAYS: Final = 3650

# Clocks of the machines may differ by this much.
_BEFORE: Final = timedelta(hours=1)

_USAGE: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def make_certificates(
    folder: CertificateFolder, nodes: Sequence[str], hosts: Sequence[str], days: int, now: datetime
) -> list[str]:
    """Make a new folder: an authority, and certificates of members, a name server and clients.

    Args:
        folder: does not exist yet, or is empty.
        nodes: the ids of the members.
        hosts: names and IP addresses of the machines, besides this one's own.
        days: how long the certificates count; the authority counts for ten years.
        now: with a time zone.

    Returns the names of what was made.

    Raises:
        CertificatesRefused: there are files already, or they cannot be written.
    """
    for host in hosts:
        _general_name(host)
    try:
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.path.iterdir()):
            raise CertificatesRefused(
                str(folder.path), "it is not empty, and nothing is overwritten: give a new folder"
            )
        authority = _Authority(folder, now)
        here = (*HERE, *hosts)
        names = [(node, (node, *here)) for node in nodes]
        for name, shown in (*names, (NAMESERVER, (NAMESERVER, *here)), (CLIENT, (CLIENT,))):
            authority.sign(name, shown, days)
    except OSError as error:
        reason = f"it cannot be written ({error.strerror}): give another folder"
        raise CertificatesRefused(str(folder.path), reason) from None
    return [AUTHORITY, *nodes, NAMESERVER, CLIENT]


class _Authority:
    """Makes its own certificate at once. Raises OSError."""

    def __init__(self, folder: CertificateFolder, now: datetime) -> None:
        self._folder = folder
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("development authority of dledger")
        public = self._key.public_key()
        made = (
            self._begun(self._name, public, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._write(AUTHORITY, made, self._key)

    def sign(self, name: str, shown: Iterable[str], days: int) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        alternatives = x509.SubjectAlternativeName([_general_name(one) for one in shown])
        purposes = [
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ]
        made = (
            self._begun(_subject(name), key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._write(name, made, key)

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _BEFORE)
            .not_valid_after(self._now + timedelta(days=days))
        )

    def _write(self, name: str, made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,  # which Java's clients read
            serialization.NoEncryption(),
        )
        _new_file(self._folder.key(name), secret, 0o600)
        shown = made.public_bytes(serialization.Encoding.PEM)
        _new_file(self._folder.certificate(name), shown, 0o644)


def _new_file(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in allowed for name in _USAGE})


def _general_name(name: str) -> x509.GeneralName:
    """Raises CertificatesRefused for what is neither an address nor an ASCII name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name.isascii() or not name.isprintable() or not name or " " in name or ":" in name:
        reason = "give names and IP addresses of machines, without ports"
        raise CertificatesRefused(f"host {name!r:.100}", reason)
    return x509.DNSName(name)
