"""Where the certificates of a member or of a tool lie. See docs/security.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsConfig:
    """Files in PEM format. A key with a password is not read: nobody is there to type it."""

    certificate: Path  # one's own, with those between it and the authority behind it
    key: Path
    authorities: Path  # whose certificates are believed
