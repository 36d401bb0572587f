"""Damages frames of real clients; some keep their lengths right, so that they get further."""

from __future__ import annotations

from collections.abc import Sequence

from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.frame import decode_frame, encode_command
from tests.hostile.hostile_values import BODIES
from tests.hostile.mutator import Mutator

# What a field may hold instead.
_TEXTS = (
    "",
    "0",
    "1",
    "-1",
    "abc",
    "1e9",
    "9" * 30,
    str(2**31),
    str(2**63 - 1),
    str(-(2**63)),
    "true",
    "a\0b",
    "%RETRY%g",
    "../../x",
    "\U0001f600",
    "x" * 300,
    "x" * 60_000,
    "TBW102",
)


class FrameMutator:
    """Makes batches of frames, whole or damaged, to be sent at once.

    Args:
        frames: as clients sent them.
        seed: which damage.
    """

    def __init__(self, frames: Sequence[bytes], seed: int) -> None:
        self._frames = frames
        self._bytes = Mutator(frames, seed)
        self._random = self._bytes.random
        self._opaque = 0

    def batch(self) -> bytes:
        """One to forty frames behind one another; some are sent twice."""
        frames: list[bytes] = []
        for _ in range(self._random.choice((1, 2, 5, 40))):
            frames += [self._frame()] * self._random.choice((1, 1, 1, 2, 5))
        return b"".join(frames)

    def _frame(self) -> bytes:
        frame = self._random.choice(self._frames)
        way = self._random.random()
        if way < 0.15:
            return frame
        # A frame that is none ends its connection: most must be whole, or few would be answered.
        if way < 0.17:
            return self._bytes.damaged(frame)
        if way < 0.35:
            return self._with_damage_inside(frame)
        return self._with_other_values(frame)

    def _with_damage_inside(self, frame: bytes) -> bytes:
        """The header or the body damaged, and both lengths as they are then."""
        header_end = 8 + int.from_bytes(frame[5:8])
        header, body = frame[8:header_end], frame[header_end:]
        if self._random.random() < 0.15 or not body:
            header = self._bytes.damaged(header)[:400_000]
        else:
            body = self._bytes.damaged(body)
        lengths = (4 + len(header) + len(body)).to_bytes(4) + frame[4:5] + len(header).to_bytes(3)
        return lengths + header + body

    def _with_other_values(self, frame: bytes) -> bytes:
        """Some fields with other values, or those of another frame, or another body."""
        command = decode_frame(frame)
        for name in list(command.fields):
            if self._random.random() < 0.2:
                command.fields[name] = self._random.choice(_TEXTS)
        other = decode_frame(self._random.choice(self._frames))
        way = self._random.random()
        if way < 0.15:
            command.fields = {**command.fields, **other.fields}
        elif way < 0.3:
            command.body = other.body
        elif way < 0.35:
            command.body = self._random.choice(BODIES)
        elif way < 0.45:
            command.code = other.code
        elif way < 0.5:
            command.code = self._random.choice((-1, 0, 9, 2**31 - 1, 200_050))
        if self._random.random() < 0.1:
            command.flag = self._random.choice((1, 2, 3, -1))
        return self._encoded(command, frame)

    def _encoded(self, command: Command, frame: bytes) -> bytes:
        self._opaque += 1
        command.opaque = self._opaque
        try:
            return encode_command(command)
        except RemotingError:  # a code that no binary header can hold
            return frame
