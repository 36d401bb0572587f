"""The record of one group: the order of its entries, its acknowledgements and reads.

The book learns of an entry when a member applies it, which it does only once it is committed. So
the first member to apply an entry decides what the others must apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dledger.changes import Path
from jepsen_like.simulation.hosts.told_state import Told, told_by, under

# Called with a promise that does not hold, and how it was broken. The first call ends the run.
Broken = Callable[[str, str], None]


class _Applied(NamedTuple):
    body: bytes
    digest: int  # of this entry and of all before it


class GroupBook:
    """The book of one group; `newest` is the last entry that a client got an answer about."""

    def __init__(self, group: str, broken: Broken) -> None:
        self.group = group
        self._broken = broken
        self._refused: dict[bytes, str] = {}
        self.acknowledged = 0
        self.newest = -1
        self._applied: dict[int, _Applied] = {}
        self._index_of: dict[bytes, int] = {}
        self._raw: dict[int, tuple[int, int, bytes]] = {}

    @property
    def applied(self) -> int:
        """The last entry with a body that any member has applied."""
        return max(self._applied, default=-1)

    def apply(self, member: str, index: int, body: bytes, digest: int) -> None:
        """Check an entry that a member applies."""
        known = self._applied.get(index)
        if known is None:
            self._applied[index] = _Applied(body, digest)
            if body in self._refused:
                self._say_refused(body)
            before = self._index_of.setdefault(body, index)
            if before != index:
                self._broken(
                    "each append happens once",
                    f"{self.group}: {body!r} is entry {before} and entry {index}",
                )
        elif known != (body, digest):
            self._broken(
                "all members apply the same",
                f"{self.group}: {member} applies {body!r} as entry {index}, another applied "
                f"{known.body!r}",
            )

    # --- for those who read the state -----------------------------------------------------------

    def last_told(self, upto: int) -> int | None:
        """Return the last entry with a body up to an index."""
        return max((index for index in self._applied if index <= upto), default=None)

    def digest(self, index: int) -> int:
        """Return the digest of an entry and all before it."""
        return self._applied[index].digest

    def told(self, path: Path, index: int) -> Told:
        """Return the changes that an entry makes under a path."""
        found = self._applied.get(index)
        return under(path, [] if found is None else told_by(index, found.body, found.digest))

    def next_told(self, path: Path, after: int) -> int | None:
        """Return the first entry after `after` that changes anything under a path."""
        return min((i for i in self._applied if i > after and self.told(path, i)), default=None)

    def state(self, path: Path, upto: int) -> dict[Path, object]:
        """Return the state under a path after all entries up to an index."""
        told = (self.told(path, index) for index in sorted(self._applied) if index <= upto)
        return {each: value for entry in told for each, value in entry}

    def restored(self, member: str, index: int, digest: int) -> None:
        """Check a member that restored a snapshot; its last body is that of entry `index`."""
        known = self._applied.get(index)
        if index >= 0 and (known is None or known.digest != digest):
            self._broken(
                "a snapshot is of the log",
                f"{self.group}: {member} restored another state of entry {index}",
            )

    def refuse(self, body: bytes, error: Exception) -> None:
        """Note the answer that a body is not in the log and never will be."""
        self._refused[body] = type(error).__name__
        if body in self._index_of:
            self._say_refused(body)

    def _say_refused(self, body: bytes) -> None:
        self._broken(
            "what is refused never happens",
            f"{self.group}: {body!r} was refused ({self._refused[body]}), and is in the log",
        )

    def acknowledge(self, body: bytes, index: int) -> None:
        """Check the answer that a body is entry `index`."""
        known = self._applied.get(index)
        if known is None or known.body != body:
            self._broken(
                "what is acknowledged is applied",
                f"{self.group}: {body!r} was acknowledged as entry {index}, which is "
                f"{known.body if known else None!r}",
            )
        self.acknowledged += 1
        self.newest = max(self.newest, index)

    def was_read(self, member: str, floor: int, index: int, state: int) -> None:
        """Check a linearizable read that began when `floor` was the newest entry.

        It returned `index`; `state` is the last entry that is in the state machine.
        """
        if index < floor or state < floor:
            self._broken(
                "reads see what was acknowledged",
                f"{self.group}: {member} read entry {index} (state {state}) after entry {floor} "
                "was acknowledged",
            )

    def saw(self, reader: str, index: int, term: int, magic: int, body: bytes) -> None:
        """Check an entry that a client received as committed."""
        entry = (term, magic, body)
        known = self._raw.setdefault(index, entry)
        if known != entry:
            self._broken(
                "committed entries do not change",
                f"{self.group}: {reader} saw entry {index} as {entry}, another saw {known}",
            )

    def check_nothing_lost(self, member: str, index: int, digest: int) -> None:
        """Check the last entry that a member has applied at the end of a run."""
        last = self.applied
        if index != last or (index >= 0 and self._applied[index].digest != digest):
            self._broken(
                "members agree in the end",
                f"{self.group}: {member} ends with entry {index}, the group with {last}",
            )
