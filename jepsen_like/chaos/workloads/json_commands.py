"""A state machine over commands in JSON, for the workloads that come with the harness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Protocol

from dledger.entry import Entry

# A chunk of a snapshot; the library takes up to 16 MiB.
CHUNK_BYTES = 256 * 1024


class Commands(Protocol):
    """The state behind a machine, and what its commands do."""

    def carry_out(self, function: str, key: object, value: object) -> object:
        """Carry out one command; return its result, a plain value. Must not raise."""

    def dump(self) -> object:
        """The state, as JSON takes it."""

    def load(self, dumped: object) -> None:
        """Replace the state by what `dump` returned."""


class JsonCommands:
    """Applies entries whose bodies are `[function, key, value]` in JSON."""

    snapshot_format = "json-commands/1"

    def __init__(self, commands: Commands) -> None:
        self.commands = commands

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """One result for each entry; None for what is no command."""
        return [self._result(entry.body) for entry in entries]

    def _result(self, body: bytes) -> object:
        try:
            function, key, value = json.loads(body)
        except ValueError:
            return None
        return self.commands.carry_out(str(function), key, value)

    def snapshot(self) -> Iterator[bytes]:
        """The whole state, as it is now."""
        dumped = json.dumps(self.commands.dump()).encode()
        return (dumped[at : at + CHUNK_BYTES] for at in range(0, len(dumped), CHUNK_BYTES))

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Replace the state. Raises ValueError if these are not chunks of a snapshot."""
        self.commands.load(json.loads(b"".join(chunks)))
