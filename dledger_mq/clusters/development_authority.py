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
        authority = _Authority(folder, now, ec.generate_private_key(ec.SECP256R1()))
        _new_file(folder.key(AUTHORITY), authority.secret, 0o600)
        _new_file(folder.certificate(AUTHORITY), authority.certificate(), 0o644)
        here = (*HERE, *hosts)
        names = [(node, (node, *here)) for node in nodes]
        for name, shown in (*names, (NAMESERVER, (NAMESERVER, *here)), (CLIENT, (CLIENT,))):
            authority.sign(name, shown, days)
    except OSError as error:
        reason = f"it cannot be written ({error.strerror}): give another folder"
        raise CertificatesRefused(str(folder.path), reason) from None
    return [AUTHORITY, *nodes, NAMESERVER, CLIENT]


def add_authority(folder: CertificateFolder, now: datetime) -> None:
    """Put a new authority before those that are believed. It signs what is signed again later.

    Everybody must have read its certificate before meeting one that it has signed. Raises OSError.
    """
    earlier = folder.certificate(AUTHORITY).read_bytes()
    authority = _Authority(folder, now, ec.generate_private_key(ec.SECP256R1()))
    _replace_file(folder.key(AUTHORITY), authority.secret, 0o600)
    _replace_file(folder.certificate(AUTHORITY), authority.certificate() + earlier, 0o644)


def renew_certificates(folder: CertificateFolder, days: int, now: datetime) -> None:
    """Sign all certificates of a folder again, for the same names and keys. Raises OSError."""
    key = serialization.load_pem_private_key(folder.key(AUTHORITY).read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    authority = _Authority(folder, now, key)
    for path in sorted(folder.path.glob("*.pem")):
        name = path.stem
        if name != AUTHORITY and folder.key(name).exists():
            authority.renew(name, days)


class _Authority:
    """Signs with its key. Its methods raise OSError."""

    def __init__(
        self, folder: CertificateFolder, now: datetime, key: ec.EllipticCurvePrivateKey
    ) -> None:
        self._folder = folder
        self._now = now
        self._key = key
        self._name = _subject("development authority of dledger")
        self.secret = _secret(key)

    def certificate(self) -> bytes:
        """Return its own certificate, made anew."""
        public = self._key.public_key()
        made = (
            self._begun(self._name, public, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def sign(self, name: str, shown: Iterable[str], days: int) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_general_name(one) for one in shown])
        made = self._signed(name, key.public_key(), alternatives, days)
        _new_file(self._folder.key(name), _secret(key), 0o600)
        _new_file(self._folder.certificate(name), made, 0o644)

    def renew(self, name: str, days: int) -> None:
        path = self._folder.certificate(name)
        earlier = x509.load_pem_x509_certificate(path.read_bytes())
        public = earlier.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        alternatives = earlier.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        _replace_file(path, self._signed(name, public, alternatives.value, days), 0o644)

    def _signed(
        self,
        name: str,
        public: ec.EllipticCurvePublicKey,
        alternatives: x509.SubjectAlternativeName,
        days: int,
    ) -> bytes:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        purposes = [
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ]
        made = (
            self._begun(_subject(name), public, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

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


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,  # which Java's clients read
        serialization.NoEncryption(),
    )


def _replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is read at any time: whole, or as it was before."""
    written = path.with_suffix(".new")
    written.unlink(missing_ok=True)
    _new_file(written, content, mode)
    written.replace(path)


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
