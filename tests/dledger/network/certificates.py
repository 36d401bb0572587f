"""Authorities and certificates, made with openssl while a test runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dledger.network.tls_config import TlsConfig


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Authority:
    """Signs certificates; all its files are in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority-key.pem"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", 10, "-subj", f"/CN={folder.name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", self._key, "-out", self.certificate),
        )

    def sign(self, name: str, *more_names: str, days: int = 10) -> TlsConfig:
        """A certificate that shows these names; made anew, it is written over the old one."""
        key, request = self.folder / f"{name}-key.pem", self.folder / f"{name}.csr"
        names = ",".join(f"DNS:{each}" for each in (name, *more_names))
        _openssl(
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName={names}"),
            *("-keyout", key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-copy_extensions", "copy", "-days", days),
            *("-CA", self.certificate, "-CAkey", self._key, "-out", self.folder / f"{name}.pem"),
        )
        return TlsConfig(
            certificate=self.folder / f"{name}.pem", key=key, authorities=self.certificate
        )


def options(tls: TlsConfig) -> list[str]:
    """The same for a command line."""
    return [
        *("--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)),
        *("--tls-ca", str(tls.authorities)),
    ]
