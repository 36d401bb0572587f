"""A state machine over commands in JSON, for the workloads that come with the harness."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dledger.entry import Entry

# A chunk of a snapshot; the library takes up to 16 MiB.
CHUNK_BYTES = 256 * 1024

State = dict[str, Any]


class JsonCommands:
    """Applies entries whose bodies are `[function, key, value]` in JSON.

    `carry_out` carries out one command on the state, and returns its result, a plain value. It must
    not raise.
    """

    snapshot_format = "json-commands/1"

    def __init__(
        self,
        carry_out: Callable[[State, str, Any, Any], object],
        initial: Mapping[str, object] = {},
    ) -> None:
        self.state: State = dict(initial)
        self._carry_out = carry_out

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Return one result for each entry; None for an entry that is not a command."""
        return [self._result(entry.body) for entry in entries]

    def _result(self, body: bytes) -> object:
        try:
            function, key, value = json.loads(body)
        except ValueError:
            return None
        return self._carry_out(self.state, str(function), key, value)

    def snapshot(self) -> Iterator[bytes]:
        dumped = json.dumps(self.state).encode()
        return (dumped[at : at + CHUNK_BYTES] for at in range(0, len(dumped), CHUNK_BYTES))

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Replace the state. Raises ValueError if these are not chunks of a snapshot."""
        self.state = json.loads(b"".join(chunks))


def state_of(machine: JsonCommands) -> State:
    """Return the whole state of a machine: the `state` of workloads."""
    return machine.state
