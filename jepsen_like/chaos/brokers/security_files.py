"""The files of a run whose brokers have certificates and users."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class SecurityFiles(NamedTuple):
    """Where they are: the folder of certificates, the administrator, what users have at present."""

    certificates: Path
    access: Path
    users: Path


def security_files(folder: Path) -> SecurityFiles:
    """Return those of a run in a folder."""
    return SecurityFiles(folder / "certificates", folder / "access.toml", folder / "users.json")
