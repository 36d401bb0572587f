"""The plain fold of the committed log, from its beginning and one entry at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b

from broker.dead_letters.state import REDRIVEN, Redriven
from broker.delay.state import DELAYS
from broker.delay.waiting_table import WaitingTable
from broker.features import REGISTRY
from broker.groups.state import GROUPS
from broker.locks.state import LOCKS, QueueLocks
from broker.log.belongings import Belongings
from broker.log.fold import fold
from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.offsets.state import OFFSETS
from broker.pop.state import POPS
from broker.relays.state import LEADER_PLACE
from broker.settings.state import CHANGED_SETTINGS
from broker.topics.settings import topic_members
from broker.topics.state import TOPICS
from broker.transactions.state import TRANSACTIONS
from dledger.entry import Entry, Magic
from jepsen_like.simulation.broker.log_model import LogModel, QueueKey
from jepsen_like.simulation.invariants import InvariantViolated

DIGEST_BYTES = 16


def digest(state: BrokerState) -> bytes:
    """Return a sum over all of a state. Equal states have equal sums, however they came about."""
    parts = [state[part] for part in state.registry.parts]
    told = repr((state.log_end, state.refused_entries, [_canonical(part) for part in parts]))
    return blake2b(told.encode(), digest_size=DIGEST_BYTES).digest()


def _canonical(value: object) -> object:
    """Return the same value without the order of tables."""
    if isinstance(value, dict | Belongings):
        return sorted((repr(key), _canonical(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    if isinstance(value, WaitingTable):
        return [tuple(one) for one in value.captured()]
    if isinstance(value, QueueLocks):  # it keeps deleted locks for a while
        return [value.time_ms, value.swept_ms, _canonical(value.owners)]
    if is_dataclass(value):
        return [_canonical(getattr(value, one.name)) for one in fields(value) if one.compare]
    return value


class Reference:
    """The state of the broker after each entry of the committed log, which grows.

    Every entry is folded twice: by the broker's own code into a separate state, and by the model.
    Wherever they differ the run fails, so the sum of an entry stands for both.
    """

    def __init__(self, committed: Sequence[Entry], model: LogModel) -> None:
        self._committed = committed
        self._digests: list[bytes] = []
        self.state = BrokerState(REGISTRY)
        self.model = model

    def digest_at(self, index: int) -> bytes:
        """Return the sum of the state after an entry that some member has applied."""
        self.advance(index)
        return self._digests[index]

    def touched(self, first: int, last: int) -> set[QueueKey]:
        """Return the queues that entries first..last brought messages to."""
        self.advance(last)
        return set().union(*self.model.touched[first : last + 1])

    def units(self, topic: str, queue_id: int, index: int) -> bytes:
        """Return the units of a queue as it exists at an entry; later messages included."""
        self.advance(index)
        return self.model.units(topic, queue_id, index)

    def advance(self, index: int) -> None:
        while len(self._digests) <= index:
            at = len(self._digests)
            entry = self._committed[at]
            if entry.magic == Magic.NORMAL:
                fold(self.state, [entry])
            self.model.fold(entry)
            self._compare(at)
            self._digests.append(digest(self.state))

    def _compare(self, index: int) -> None:
        """Check that the broker's fold agrees with the model."""
        for what, folded, meant in self._views():
            if folded != meant:
                raise InvariantViolated(
                    "the fold means what the log says",
                    f"{what} after entry {index}: {folded!r:.300}, should be {meant!r:.300}",
                )

    def _views(self) -> list[tuple[str, object, object]]:
        """Return the parts of the state: name, by the broker's fold, and by the model."""
        state, model = self.state, self.model
        messages, locks, place = state[MESSAGES], state[LOCKS], state[LEADER_PLACE]
        topics, offsets, redriven = state[TOPICS], state[OFFSETS], state[REDRIVEN]
        letters = _letters(redriven)
        return [
            (
                "topics",
                {name: topic_members(config) for name, config in topics.configs.items()},
                model.topics,
            ),
            ("births of topics", topics.created_at, model.created_at),
            ("first offsets of topics", messages.begins, model.begins),
            ("last offsets of deleted topics", messages.ended.ends, model.ended_topics),
            (
                "ends of queues",
                {
                    (t, q): end
                    for t, table in messages.queue_ends.items()
                    for q, end in table.items()
                },
                model.ends,
            ),
            (
                "offsets",
                {(*key, q): at for key, table in offsets.tables.items() for q, at in table.items()},
                model.offsets,
            ),
            (
                "resets",
                {(*key, q): at for key, table in offsets.resets.items() for q, at in table.items()},
                model.resets,
            ),
            (
                "groups",
                {name: group.as_dict() for name, group in state[GROUPS].configs.items()},
                model.groups,
            ),
            ("locks", {key: tuple(owner) for key, owner in locks.owners.items()}, model.locks),
            ("retention", (messages.kept_from, messages.kept_position), model.kept),
            ("the leader's place", (place.node_id, place.address), model.leader),
            ("messages", messages.messages, model.messages),
            ("entries that were passed over", messages.passed_over.indexes, model.passed_over),
            (
                "delayed messages",
                {one.position: one.due_ms for one in state[DELAYS].waiting.captured()},
                {position: one.due_ms for position, one in model.waiting.items()},
            ),
            (
                "pops",
                {
                    key: (
                        of.next_offset,
                        {at: tuple(one) for at, one in of.in_flight.items()},
                    )
                    for key, of in state[POPS].queues.items()
                },
                {key: (queue.next, queue.out) for key, queue in model.pops.items()},
            ),
            (
                "open transactions",
                {
                    position: (half.at, half.due_ms, half.checks)
                    for position, half in state[TRANSACTIONS].halves.items()
                },
                {position: tuple(half[1:4]) for position, half in model.halves.items()},
            ),
            ("resumed transactions", set(state[TRANSACTIONS].resumed), model.resumed),
            ("settings", state[CHANGED_SETTINGS].values, model.settings),
            (
                "dead letters that were delivered once more",
                (redriven.redriven_letters, letters),
                (model.redriven, {key: model.taken_letters(*key) for key in letters}),
            ),
        ]


def _letters(redriven: Redriven) -> dict[tuple[str, int], set[int]]:
    """Return the dead letters that were delivered once more, by topic and queue."""
    return {
        (topic, queue_id): _numbers(runs.begins, runs.ends)
        for topic, queues in redriven.runs.items()
        for queue_id, runs in queues.items()
    }


def _numbers(begins: Iterable[int], ends: Iterable[int]) -> set[int]:
    return {number for run in zip(begins, ends, strict=True) for number in range(*run)}
