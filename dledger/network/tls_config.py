"""The paths of the certificates of a member or a tool: docs/security.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsConfig:
    """Files in PEM format. A key with a password is refused: a server cannot ask for it."""

    certificate: Path  # of the member or tool, followed by the intermediate ones
    key: Path
    authorities: Path  # which sign the certificates of the group
