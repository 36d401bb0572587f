"""The changes that entries of simulated groups make, for watches. Pure."""

from __future__ import annotations

from dledger.changes import Path

# Paths of the last entry of each writer begin with this.
OF_WRITERS = "of"
NEWEST: Path = ("newest",)

# Paths with their values, in the order in which an entry changes them.
Told = list[tuple[Path, object]]


def writer_of(body: bytes) -> str:
    return body.decode().split()[1]


def told_by(index: int, body: bytes, digest: int) -> Told:
    return [((OF_WRITERS, writer_of(body)), index), (NEWEST, [index, digest])]


def under(path: Path, told: Told) -> Told:
    """Return the changes under a path."""
    return [(each, value) for each, value in told if each[: len(path)] == path]
