"""A certificate that a proxy makes for itself at its start, when none is given.

The clients in Java, Go and C# speak TLS unless they are told otherwise, and believe any
certificate. RocketMQ's proxy makes one, too. It hides what is said from who only listens.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remoting.net.tls import ServerTls
from remoting.net.tls_config import ServerTlsConfig

# Longer than a process lives.
_DAYS: Final = 3650
_BEFORE: Final = timedelta(hours=1)


def own_tls(protocols: Sequence[str]) -> ServerTls:
    """Return TLS beside plain connections, with a certificate that no authority has signed.

    Its key is on disk only while it is loaded.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a proxy of dledger")])
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with tempfile.TemporaryDirectory(prefix="dledger-proxy-") as folder:  # mode 0700
        certificate_file, key_file = Path(folder, "own.crt"), Path(folder, "own.key")
        certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(secret)
        config = ServerTlsConfig(certificate=certificate_file, key=key_file)
        return ServerTls(config, protocols=protocols)
