"""The state machine of a simulated member: shows any difference in order, content or answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from dledger.entry import Entry, Magic
from jepsen_like.simulation.session_history import SessionFold

# Bytes of a snapshot's chunk: an odd size, so that chunks end inside of records.
CHUNK_BYTES = 61
FORMAT = "simulation/1"


class SumMachine:
    """Folds every entry into one number."""

    __slots__ = ("sum",)

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, entries: Sequence[Entry]) -> list[int]:
        """Apply entries in log order; the sum after each of them."""
        sums = []
        for entry in entries:
            if entry.magic == Magic.NORMAL:
                self.sum = crc32(entry.body, self.sum)
            sums.append(self.sum)
        return sums


class MachineState:
    """The state machine of a member: an application and sessions.

    Args:
        reads_sessions: whether entries of sessions may be among those it gets.

    Attributes:
        restored: how often it restored a snapshot.
    """

    snapshot_format = FORMAT

    def __init__(self, *, reads_sessions: bool = True) -> None:
        self.sums = SumMachine()
        self.sessions = SessionFold()
        self._reads_sessions = reads_sessions
        self.restored = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        """Apply entries in log order; return the answers to clients."""
        self.sums.apply(entries)
        if not self._reads_sessions:
            return [None] * len(entries)
        return self.sessions.apply(entries)

    def snapshot(self) -> Iterator[bytes]:
        """The state in chunks."""
        state = self.sums.sum.to_bytes(4, "big") + self.sessions.state()
        return (state[at : at + CHUNK_BYTES] for at in range(0, len(state), CHUNK_BYTES))

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Take the state of a snapshot."""
        state = b"".join(chunks)
        self.sums.sum = int.from_bytes(state[:4], "big")
        self.sessions.restore(state[4:])
        self.restored += 1
