"""Where the certificates of a member or of a tool lie. See docs/security.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsConfig:
    """Files in PEM format. A key with a password is refused: a server cannot ask for it."""

    certificate: Path  # of the member or tool, followed by those between it and the authority
    key: Path
    authorities: Path  # that sign the certificates of the group
