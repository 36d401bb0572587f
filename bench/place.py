"""Where a group of three processes lives: a folder, and addresses of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dledger.free_ports import free_ports

MEMBERS = 3


class Place(NamedTuple):
    """A folder for data, and two addresses for each member: for clients, and among members."""

    folder: Path
    peers: dict[str, str]
    inner: dict[str, str]


def member_ids() -> list[str]:
    return [f"n{each}" for each in range(MEMBERS)]


def make_place(folder: Path) -> Place:
    """The folder must not exist."""
    folder.mkdir(parents=True)
    ports = [f"127.0.0.1:{port}" for port in free_ports(2 * MEMBERS)]
    ids = member_ids()
    return Place(
        folder.absolute(),
        dict(zip(ids, ports[:MEMBERS], strict=True)),
        dict(zip(ids, ports[MEMBERS:], strict=True)),
    )
