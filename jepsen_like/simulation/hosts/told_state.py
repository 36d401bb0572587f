"""What the entries of simulated groups change, for those who watch. Pure."""

from __future__ import annotations

from dledger.changes import Path

# The paths of the last entry of each writer begin with this.
OF_WRITERS = "of"
NEWEST: Path = ("newest",)

# What each path has, and in which order an entry changes it.
Told = list[tuple[Path, object]]


def writer_of(body: bytes) -> str:
    """The program that appended a body."""
    return body.decode().split()[1]


def told_by(index: int, body: bytes, digest: int) -> Told:
    """What one entry changes."""
    return [((OF_WRITERS, writer_of(body)), index), (NEWEST, [index, digest])]


def under(path: Path, told: Told) -> Told:
    """Of that, what is under a path."""
    return [(each, value) for each, value in told if each[: len(path)] == path]
