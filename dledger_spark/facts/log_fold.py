"""The facts of one log: batches of entries in, rows of all tables out.

A batch job, a stream and a plain Python program feed the same fold with the same entries and so get
the same rows, wherever they stop in between: a later run goes on from `state`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dledger_spark.facts.broker_command import broker_commands
from dledger_spark.facts.command_fold import CommandFold
from dledger_spark.facts.fact_rows import FactRows
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.facts.folded_commands import FoldedCommands
from dledger_spark.log.mark import UNKNOWN, Mark, mark_of
from dledger_spark.records.acceptance import Acceptance, without
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import MESSAGE_SCHEMA

_FIRST_STATE_VERSION: Final = 1
_STATE_VERSION: Final = 2
_LIFE: Final = "topic_life"


class LogFold:
    """The fold of one log, from an entry on.

    Args:
        group: the group of the log; None for a log of Java's, whose records are not judged, and
            which has no commands of brokers.
        first: the first entry of the fold.
        is_judged_whole: whether the log has all topics of its records from entry 0 on.

    Attributes:
        next_index: the entry that comes next.
        end: the mark of the last entry that was folded.
    """

    def __init__(self, group: str | None, first: int, *, is_judged_whole: bool) -> None:
        is_whole = first == 0 and is_judged_whole
        self._acceptance = None if group is None else Acceptance(is_whole=is_whole)
        self._rows = FactRows(group)
        self._commands = CommandFold(self._rows, FoldedCommands(is_whole=is_whole))
        self._log_ms: int | None = None
        self.end = UNKNOWN
        self.next_index = first

    def fold(self, entries: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        """Return the facts of the next entries, by table; tables without rows are left out.

        `entries` is a batch of the table of entries, and begins with `next_index`.
        """
        index = entries.column("index")
        assert index[0].as_py() == self.next_index
        messages = message_batch(entries, MESSAGE_SCHEMA.names)
        refused: list[tuple[int, int]] = []
        lives = self._commands.folded.lives.copy()
        if self._acceptance is not None:
            refused = self._acceptance.judge(entries, messages)
            messages = without(messages, refused)
            self._fold_commands(entries, messages, refused)
        self.next_index = index[-1].as_py() + 1
        self.end = mark_of(entries)
        found = self._rows.take()
        found["entries"] = entries.select(FACTS["entries"].names)
        if len(messages):
            of_lives = self._lives(messages, lives)
            found["messages"] = messages.append_column(_LIFE, of_lives)
        self._commands.deletions.clear()
        return found

    def _fold_commands(
        self, entries: pa.RecordBatch, messages: pa.RecordBatch, refused: list[tuple[int, int]]
    ) -> None:
        stored = messages.column("store_time").cast(pa.int64()).fill_null(0).to_numpy() // 1000
        newest = np.maximum.accumulate(np.append(self._log_ms or 0, stored))
        # A record comes before the command that follows it, so it counts for the command's time.
        indexes = entries.column("index").to_numpy()
        before = np.searchsorted(messages.column("index").to_numpy(), indexes, side="right")
        times = newest[before].tolist()
        for command in broker_commands(entries):
            index = command.entry.index
            if command.is_attached and any(a <= index <= b for a, b in refused):
                continue
            self._commands.fold(command, times[index - self.next_index] or None)
        self._log_ms = int(newest[-1]) or None

    def _lives(self, messages: pa.RecordBatch, before: dict[str, int]) -> pa.Array:
        """Return how often the topic of each message was deleted before it."""
        lives = np.zeros(len(messages), np.int32)
        if before or self._commands.deletions:
            index = messages.column("index").to_numpy()
            topics = messages.column("topic")
            for topic, count in before.items():
                lives += pc.equal(topics, topic).to_numpy(zero_copy_only=False) * np.int32(count)
            for deleted_at, topic in self._commands.deletions:
                is_later = index > deleted_at
                lives += pc.equal(topics, topic).to_numpy(zero_copy_only=False) & is_later
        return pa.array(lives)

    @property
    def state(self) -> bytes:
        """The state, for `resumed`, as JSON."""
        content = {
            "version": _STATE_VERSION,
            "next": self.next_index,
            "term": self.end.term,
            "chain_crc": self.end.chain,
            "log_ms": self._log_ms,
            "acceptance": self._acceptance and json.loads(self._acceptance.encode()),
            "commands": self._commands.folded.as_json(),
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def resumed(cls, group: str | None, state: bytes) -> LogFold:
        """Continue another fold of the same log.

        Raises:
            ValueError: it is no state of this version.
        """
        try:
            content: dict[str, Any] = json.loads(state)
            version = content["version"]
            if version not in (_FIRST_STATE_VERSION, _STATE_VERSION):
                raise ValueError(f"version {version}")
            fold = cls(group, int(content["next"]), is_judged_whole=False)
            fold._log_ms = content["log_ms"]
            fold.end = Mark(int(content["term"]), int(content["chain_crc"]))
            acceptance = content["acceptance"]
            if acceptance is not None:
                fold._acceptance = Acceptance.decode(json.dumps(acceptance).encode())
            is_first = version == _FIRST_STATE_VERSION
            take = FoldedCommands.of_first_version if is_first else FoldedCommands.of_json
            fold._commands = CommandFold(fold._rows, take(content["commands"]))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"no state of a fold: {error!r}") from None
        return fold
