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
    __slots__ = ("sum",)

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, entries: Sequence[Entry]) -> list[int]:
        sums = []
        for entry in entries:
            if entry.magic == Magic.NORMAL:
                self.sum = crc32(entry.body, self.sum)
            sums.append(self.sum)
        return sums


class MachineState:
    """The sums and the sessions of a member; `restored` counts its restored snapshots."""

    snapshot_format = FORMAT

    def __init__(self, *, reads_sessions: bool = True) -> None:
        self.sums = SumMachine()
        self.sessions = SessionFold()
        self._reads_sessions = reads_sessions
        self.restored = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.sums.apply(entries)
        if not self._reads_sessions:
            return [None] * len(entries)
        return self.sessions.apply(entries)

    def snapshot(self) -> Iterator[bytes]:
        state = self.sums.sum.to_bytes(4, "big") + self.sessions.state()
        return (state[at : at + CHUNK_BYTES] for at in range(0, len(state), CHUNK_BYTES))

    def restore(self, chunks: Iterator[bytes]) -> None:
        state = b"".join(chunks)
        self.sums.sum = int.from_bytes(state[:4], "big")
        self.sessions.restore(state[4:])
        self.restored += 1
