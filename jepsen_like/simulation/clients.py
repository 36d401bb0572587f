"""Compares the requests of clients and their answers with the committed log."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from dledger.entry import Entry, Magic
from dledger.sessions.session_entry import is_envelope
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.session_history import SessionHistory

_NUMBER_BYTES = 8
# No run has so many appends that these bytes of a number are not zero. Entries of an application
# begin with others.
_MARK = bytes(4)


class Told(Enum):
    """What a client knows about one of its appends."""

    NOTHING = "unknown"
    ACKNOWLEDGED = "acknowledged"
    NEVER = "certainly not appended"


class History:
    """All operations of a run. The number at the start of a body identifies an append."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._index: dict[int, int] = {}  # of acknowledged appends
        self._highest_acknowledged = -1
        self._read_floors: dict[int, int] = {}
        self._tickets = 0
        self.reads_done = 0
        self.sessions = SessionHistory()
        self.entries: list[Entry] = []  # all that any member applied, by index

    # --- appends --------------------------------------------------------------------------------

    def begin_append(self, padding: int) -> tuple[int, bytes]:
        """Begin an append; return its number, and its body of 8 bytes and `padding`."""
        number = len(self._told)
        self._told.append(Told.NOTHING)
        return number, number.to_bytes(_NUMBER_BYTES, "big") + bytes(padding)

    def acknowledge(self, number: int, index: int) -> None:
        self._told[number] = Told.ACKNOWLEDGED
        self._index[number] = index
        self._highest_acknowledged = max(self._highest_acknowledged, index)

    def refuse(self, number: int) -> None:
        """Note the answer that an append never happened, or is certainly lost."""
        self._told[number] = Told.NEVER

    def told(self, number: int) -> Told:
        return self._told[number]

    # --- reads ----------------------------------------------------------------------------------

    def begin_read(self) -> int:
        """Begin a linearizable read; return its ticket."""
        self._tickets += 1
        self._read_floors[self._tickets] = self._highest_acknowledged
        return self._tickets

    def end_read(self, ticket: int, index: int | None) -> None:
        """End a read that saw a state with entry `index`, or that failed (None)."""
        floor = self._read_floors.pop(ticket)
        if index is None:
            return
        self.reads_done += 1
        if index < floor:
            raise InvariantViolated(
                "reads are linearizable",
                f"a read saw entry {index}, begun after entry {floor} was acknowledged",
            )

    # --- the log ------------------------------------------------------------------------------

    def applied(self, entries: Sequence[Entry]) -> None:
        """Keep the entries that any member applied first, even if all members drop them later."""
        known = len(self.entries)
        if entries[-1].index >= known:
            self.entries += entries[max(0, known - entries[0].index) :]

    # --- the end --------------------------------------------------------------------------------

    def check(self, entries: Sequence[Entry]) -> None:
        """Compare what clients know with the log that the group has committed."""
        found: dict[int, int] = {}
        for entry in entries:
            if entry.magic != Magic.NORMAL or is_envelope(entry.body):
                continue
            if not entry.body.startswith(_MARK):
                continue
            number = int.from_bytes(entry.body[:_NUMBER_BYTES], "big")
            if found.setdefault(number, entry.index) != entry.index:
                raise InvariantViolated(
                    "appended at most once",
                    f"append {number} is entry {found[number]} and entry {entry.index}",
                )
        for number, told in enumerate(self._told):
            if told is Told.NEVER and number in found:
                raise InvariantViolated(
                    "refused means never",
                    f"append {number} was refused and is entry {found[number]}",
                )
            if told is Told.ACKNOWLEDGED and found.get(number) != self._index[number]:
                raise InvariantViolated(
                    "acknowledged means for ever",
                    f"append {number} was acknowledged as entry {self._index[number]}, "
                    f"it is entry {found.get(number)}",
                )
