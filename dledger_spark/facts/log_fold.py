"""The facts of one log: batches of entries in, rows of all tables out.

A batch job, a stream and a plain Python program feed the same fold with the same entries and so get
the same rows, wherever they stop in between: a later run goes on from `state`.

It has two parts. `LogFold.order` needs the entries one after the other, but of messages only what
says where they are. `decoded` makes the rows of any entries, in any order, and is most of the work.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dledger_spark.facts.broker_command import broker_commands
from dledger_spark.facts.command_fold import CommandFold
from dledger_spark.facts.fact_rows import FactRows
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.facts.folded_commands import FoldedCommands
from dledger_spark.log.mark import UNKNOWN, Mark, mark_of
from dledger_spark.records.acceptance import COLUMNS, Acceptance, Run, without
from dledger_spark.records.message_columns import message_batch
from dledger_spark.schema import MESSAGE_SCHEMA

_FIRST_STATE_VERSION: Final = 1
_STATE_VERSION: Final = 2
_LIFE: Final = "topic_life"
# The columns of the table of messages that the log's order is folded with.
ORDER_COLUMNS: Final = (*COLUMNS, "store_time")


class Known(NamedTuple):
    """What the log's order says about some entries.

    Attributes:
        refused: the records that the brokers have refused.
        lives: how often each topic was deleted before.
        deletions: the entries that delete topics, and these, in order.
    """

    refused: list[Run]
    lives: dict[str, int]
    deletions: list[tuple[int, str]]

    def with_next(self, behind: Known) -> Known:
        """Return what is known of these entries and those behind them."""
        refused, deletions = self.refused + behind.refused, self.deletions + behind.deletions
        return Known(refused, self.lives, deletions)


def decoded(
    entries: pa.RecordBatch, messages: pa.RecordBatch, known: Known
) -> dict[str, pa.RecordBatch]:
    """Return the rows of entries and of the messages in them. The order of batches is no matter.

    Args:
        entries: a batch of the table of entries.
        messages: all records in it, with all columns of the table of messages.
        known: what `LogFold.order` knows of these entries, or of more that begin with them or
            before them.
    """
    found = {"entries": entries.select(FACTS["entries"].names)}
    accepted = without(messages, known.refused)
    if len(accepted):
        found["messages"] = accepted.append_column(_LIFE, _lives(accepted, known))
    return found


def _lives(messages: pa.RecordBatch, known: Known) -> pa.Array:
    """Return how often the topic of each message was deleted before it."""
    if not known.lives and not known.deletions:
        return pa.array(np.zeros(len(messages), np.int32))
    coded = messages.column("topic").dictionary_encode()
    topics = coded.dictionary.to_pylist()
    of_topics = np.array([known.lives.get(topic, 0) for topic in topics], np.int32)
    codes, index = coded.indices.to_numpy(), messages.column("index").to_numpy()
    lives = of_topics[codes]
    for deleted_at, topic in known.deletions:
        if topic in topics:
            lives += (codes == topics.index(topic)) & (index > deleted_at)
    return pa.array(lives)


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
        tables: the tables that have the facts so far; none if an earlier version does not say it.
    """

    def __init__(self, group: str | None, first: int, *, is_judged_whole: bool) -> None:
        is_whole = first == 0 and is_judged_whole
        self._acceptance = None if group is None else Acceptance(is_whole=is_whole)
        self._rows = FactRows(group)
        self._commands = CommandFold(self._rows, FoldedCommands(is_whole=is_whole))
        self._log_ms: int | None = None
        self.end = UNKNOWN
        self.next_index = first
        self.tables = frozenset(FACTS)

    def fold(self, entries: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
        """Return the facts of the next entries, by table; tables without rows are left out.

        `entries` is a batch of the table of entries, and begins with `next_index`.
        """
        messages = message_batch(entries, MESSAGE_SCHEMA.names)
        found, known = self.order(entries, messages)
        return found | decoded(entries, messages, known)

    def order(
        self, entries: pa.RecordBatch, messages: pa.RecordBatch
    ) -> tuple[dict[str, pa.RecordBatch], Known]:
        """Fold the next entries: what needs the log's order, and no bodies of messages.

        Args:
            entries: a batch of the table of entries, which begins with `next_index`.
            messages: all records in it, with `ORDER_COLUMNS` of the table of messages or more.

        Returns:
            The facts about commands, by table, and what `decoded` needs for the other facts.
        """
        index = entries.column("index")
        assert index[0].as_py() == self.next_index
        refused: list[Run] = []
        lives = self._commands.folded.lives.copy()
        if self._acceptance is not None:
            refused = self._acceptance.judge(entries, messages)
            self._fold_commands(entries, without(messages, refused), refused)
        self.next_index = index[-1].as_py() + 1
        self.end = mark_of(entries)
        known = Known(refused, lives, list(self._commands.deletions))
        self._commands.deletions.clear()
        return self._rows.take(), known

    def _fold_commands(
        self, entries: pa.RecordBatch, messages: pa.RecordBatch, refused: list[Run]
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
            "tables": list(FACTS),
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
            fold.tables = frozenset(content.get("tables", ()))
            is_first = version == _FIRST_STATE_VERSION
            take = FoldedCommands.of_first_version if is_first else FoldedCommands.of_json
            fold._commands = CommandFold(fold._rows, take(content["commands"]))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"no state of a fold: {error!r}") from None
        return fold
