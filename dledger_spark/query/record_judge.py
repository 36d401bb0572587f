"""Judges the records of ranges that a query reads one after another."""

from typing import Final, NamedTuple

from dledger_spark.entries.entry_columns import EntryMismatch
from dledger_spark.log.entry_batches import BATCH_BYTES
from dledger_spark.log.mark import NO_CHAIN, UNKNOWN
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.log.readable_log import (
    Origin,
    ReadableLog,
    acceptance_from,
    sound_batches,
)
from dledger_spark.records.acceptance import COLUMNS, Acceptance, Run, changes_topics
from dledger_spark.records.message_columns import message_batch

# Spark plans the queries of a session in one process, as long as they are less than a minute apart.
# This many judged ranges are remembered there for later queries, of 128 MiB each by default.
MAX_REMEMBERED: Final = 256
MAX_REMEMBERED_RUNS: Final = 1024  # of refused records in a range, which are rare
MAX_REMEMBERED_BYTES: Final = 64 * 1024  # of the state behind a range; a queue takes about 10


class _Judged(NamedTuple):
    """A range, where judging began, and the chain sum of the log up to the range's end."""

    origin: Origin
    begin: int
    entries: range
    chain: int


_remembered: dict[_Judged, tuple[list[Run], bytes]] = {}


class RecordJudge:
    """Finds the records that the brokers have refused (see `acceptance`).

    It remembers the state behind the last range of each group, so the next range needs no other
    entries. Its results are also remembered for other queries of this process. With
    `fail_on_data_loss` a missing file before a range is an error; else topics are unknown behind
    it.
    """

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        # The entry behind the last range of each group, and the state there.
        self._states: dict[str, tuple[int, bytes]] = {}

    def refused(self, log: ReadableLog, entries: range, begin: int) -> list[Run]:
        """Return the refused records of a range.

        Judging begins at `begin`, at the range's first entry or before, and reads the entries
        between, unless it knows the state of an entry there. Topics are unknown at `begin`, unless
        that is entry 0. Raises DledgerSparkError, as reading the entries does, except for sums.
        """
        if log.group is None:
            return []  # a log of Java's: its topics are not in it
        end = log.mark(entries.stop - 1) or UNKNOWN
        judged = _Judged(log.origin, begin, entries, end.chain)
        known = _remembered.get(judged)
        if known is None:
            state = self._state_before(log, log.group, begin, entries.start)
            known = self._judged(log, entries, state), state.encode()
            # If lost entries are skipped, they may come back.
            if end.chain != NO_CHAIN and self._fail_on_data_loss:
                _remember(judged, *known)
        refused, content = known
        self._states[log.group] = entries.stop, content
        return refused

    def _judged(self, log: ReadableLog, entries: range, state: Acceptance) -> list[Run]:
        return _judge(log, entries, state, fail_on_data_loss=self._fail_on_data_loss)

    def topics_before(self, log: ReadableLog, index: int) -> frozenset[str] | None:
        """Return all topics that there were before an entry; None if that is unknown."""
        at, content = self._states.get(log.group or "", (-1, b""))
        return Acceptance.decode(content).topics if at == index else None

    def _state_before(self, log: ReadableLog, group: str, begin: int, index: int) -> Acceptance:
        at, content = self._states.get(group, (-1, b""))
        if begin <= at <= index:
            state = Acceptance.decode(content)
        else:
            at, state = begin, acceptance_from(log, begin)
        for part in log.parts(range(at, index), fail_on_data_loss=self._fail_on_data_loss):
            if part.start != at:
                state = Acceptance(is_whole=False)
            self._judged(log, part, state)
            at = part.stop
        return state if at == index else Acceptance(is_whole=False)


def _remember(judged: _Judged, refused: list[Run], state: bytes) -> None:
    if len(refused) <= MAX_REMEMBERED_RUNS and len(state) <= MAX_REMEMBERED_BYTES:
        if len(_remembered) >= MAX_REMEMBERED:
            del _remembered[next(iter(_remembered))]
        _remembered[judged] = refused, state


def _is_accepted(state: Acceptance, stretch: QueuedEntries) -> bool:
    """Accept the records of a stretch if the queues show that none can be refused."""
    others = stretch.others
    if len(others):
        try:
            read = stretch.read(others, checksums=False)
        except EntryMismatch:
            # Reading all of it finds the entries elsewhere, or raises what is wrong.
            return False
        if len(message_batch(read, ("index",))) or changes_topics(read):
            return False
    return state.take(stretch.runs)


def _judge(
    log: ReadableLog, entries: range, state: Acceptance, *, fail_on_data_loss: bool
) -> list[Run]:
    """Return the refused records of a range; consume queues decide on most entries."""
    refused: list[Run] = []
    at = entries.start
    for stretch in log.queued(entries):
        if not _is_accepted(state, stretch):
            refused += _judge_all(log, stretch.entries, state, fail_on_data_loss)
        at = stretch.entries.stop
    return refused + _judge_all(log, range(at, entries.stop), state, fail_on_data_loss)


def _judge_all(
    log: ReadableLog, entries: range, state: Acceptance, fail_on_data_loss: bool
) -> list[Run]:
    refused: list[Run] = []
    at = entries.start
    for batch in sound_batches(
        log,
        entries,
        batch_bytes=BATCH_BYTES,
        # A task leaves out damaged entries, which must not count as records here.
        checksums=not fail_on_data_loss,
        fail_on_data_loss=fail_on_data_loss,
    ):
        if batch.column("index")[0].as_py() != at:
            state.forget()
        refused += state.judge(batch, message_batch(batch, COLUMNS))
        at = batch.column("index")[-1].as_py() + 1
    if at != entries.stop:
        state.forget()
    return refused
