"""Bugs planted on purpose in the broker's fold, its snapshots, its queues, and their rebuild."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgpack

import broker.machine
import broker.messages.fold
import broker.store.message_reader
import broker.topics.changes
import broker.transactions.commands
from broker.admin.settings_processor import SettingsProcessor
from broker.dead_letters.processor import RedriveProcessor
from broker.dead_letters.state import Redriven
from broker.delay.waiting_table import Waiting, WaitingTable
from broker.filters.condition import Condition
from broker.locks.state import QueueLocks
from broker.log.state import BrokerState, Deletion
from broker.log.state_snapshot import captured
from broker.log.submissions import Then
from broker.messages.ended_topics import EndedTopics
from broker.messages.passed_over import PassedOver
from broker.messages.record_run import RecordRun, read_run
from broker.offsets.commands import CommittedOffset
from broker.offsets.commits import OffsetCommits
from broker.offsets.generations import Generations
from broker.offsets.state import Offsets
from broker.pop.acks import PopAcks
from broker.pop.commands import PoppedMessage
from broker.pop.state import Pops, QueueKey
from broker.retry.processor import RetryProcessor
from broker.sends.pending_messages import PendingSend
from broker.serving.origin import Origin
from broker.serving.requests import Requests
from broker.store.consume_queue import UNIT_BYTES, ConsumeQueue
from broker.store.consume_queues import ConsumeQueues
from broker.store.damaged_queues import DamagedQueues
from broker.store.message_reader import Chosen, choose
from broker.store.queue_rebuild import QueueRebuild
from broker.store.queue_sync import QueueSync
from broker.store.synced_mark import SyncedMark
from broker.topics.changes import TopicChanges
from broker.topics.commands import DeleteTopic
from broker.topics.state import Topics
from broker.transactions.checks import Checks
from broker.transactions.ends import Ends
from broker.transactions.half_sends import HalfSends
from broker.transactions.state import End, Half, Transactions
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug
from remoting.wire.command import Command


def _nothing(*_: Any) -> None:
    """Replaces what a bug leaves out."""


def _outlives_its_topic(part_name: str) -> list[Replacement]:
    def topic_deleted(self: BrokerState, deletion: Deletion) -> None:
        for part in self.registry.parts:
            if part.name != part_name:
                part.topic_deleted(self[part], deletion)

    return [Replacement(BrokerState, "topic_deleted", topic_deleted)]


def _offsets_of_an_earlier_topic() -> list[Replacement]:
    def existed(self: Topics, topic: str, _: int) -> bool:
        return topic in self.configs

    return [Replacement(Topics, "existed", existed)]


def _not_in_snapshots(what: str) -> list[Replacement]:
    def without(state: BrokerState) -> Iterator[bytes]:
        chunks = captured(state)
        return (one for one in chunks if msgpack.unpackb(one, strict_map_key=False)[0] != what)

    return [Replacement(broker.machine, "captured", without)]


def _queues_not_synced() -> list[Replacement]:
    def run(self: QueueSync) -> None:
        self.lacking.write()
        if self._mark is not None:
            self._mark()
        self.is_done = True

    return [Replacement(QueueSync, "run", run)]


def _queue_folders_not_synced() -> list[Replacement]:
    return [Replacement(QueueSync, "_folders", lambda _: set())]


def _files_of_another_state_believed() -> list[Replacement]:
    return [Replacement(SyncedMark, "read", lambda _: 1 << 62)]


def _mended_files_believed() -> list[Replacement]:
    return [Replacement(SyncedMark, "withdraw", _nothing)]


def _damaged_files_marked() -> list[Replacement]:
    def sync_due(self: ConsumeQueues, log_end: int) -> QueueSync:
        to_mend, self.to_mend = self.to_mend, DamagedQueues({}, 0)
        try:
            return due(self, log_end)
        finally:
            self.to_mend = to_mend

    due = ConsumeQueues.sync_due
    return [Replacement(ConsumeQueues, "sync_due", sync_due)]


def _damaged_queues_served() -> list[Replacement]:
    def follow_role(self: Requests) -> None:
        self._queues_are_whole = lambda: True
        follow(self)

    follow = Requests.follow_role
    return [Replacement(Requests, "follow_role", follow_role)]


def _queues_outlive_their_topic() -> list[Replacement]:
    return [Replacement(ConsumeQueues, "delete_topic", _nothing)]


def _rebuild_ignores_deletions() -> list[Replacement]:
    return [Replacement(QueueRebuild, "_forget", _nothing)]


def _rebuild_takes_what_was_passed_over() -> list[Replacement]:
    return [Replacement(PassedOver, "known", lambda _: frozenset())]


def _file_before_the_first_unit_missing() -> list[Replacement]:
    def begins_with(self: ConsumeQueue, first: int) -> None:
        self.floor = self._begin = first
        self._suspect = False

    return [Replacement(ConsumeQueue, "begins_with", begins_with)]


def _delivered_early() -> list[Replacement]:
    def due(self: WaitingTable, now_ms: int, from_position: int, limit: int) -> list[Waiting]:
        return found(self, now_ms + 1_500, from_position, limit)

    found = WaitingTable.due
    return [Replacement(WaitingTable, "due", due)]


def _delivered_messages_wait_on() -> list[Replacement]:
    return [Replacement(WaitingTable, "remove", WaitingTable.get)]


def _retention_drops_what_waits() -> list[Replacement]:
    return [Replacement(BrokerState, "needed_from", lambda _: None)]


def _ended_transactions_stay_open() -> list[Replacement]:
    def end(self: Transactions, position: int, end: End) -> Half | None:
        half = self.halves.get(position)
        ended(self, position, end)
        if half is not None:
            self.halves[position] = half
        return half

    ended = Transactions.end
    return [Replacement(Transactions, "end", end)]


def _half_messages_seen() -> list[Replacement]:
    def prepare(self: HalfSends, send: PendingSend, pairs: Mapping[str, str]) -> None:
        topic, queue_id = send.topic, send.queue_id
        prepared(self, send, pairs)
        send.topic, send.queue_id = topic, queue_id

    prepared = HalfSends.prepare
    return [Replacement(HalfSends, "prepare", prepare)]


class _Silent:
    """An origin that is answered by others."""

    def send(self, _reply: Command) -> None:
        """Nobody hears it."""


def _commits_count_during_resets() -> list[Replacement]:
    return [Replacement(Offsets, "reset", lambda *_: None)]


def _send_backs_acknowledged_early() -> list[Replacement]:
    def store(self: RetryProcessor, origin: Origin, command: Command, *more: Any) -> None:
        origin.send(command.reply())
        stored(self, cast(Origin, _Silent()), command, *more)

    stored = RetryProcessor._store_back
    return [Replacement(RetryProcessor, "_store_back", store)]


def _send_backs_doubled() -> list[Replacement]:
    def store(self: RetryProcessor, origin: Origin, command: Command, *more: Any) -> None:
        stored(self, origin, command, *more)
        stored(self, cast(Origin, _Silent()), command, *more)

    stored = RetryProcessor._store_back
    return [Replacement(RetryProcessor, "_store_back", store)]


def _old_handles_acknowledge() -> list[Replacement]:
    def land(self: Pops, key: QueueKey, offset: int, popped_ms: int) -> bool:
        queue = self.queues.get(key)
        flight = None if queue is None else queue.in_flight.get(offset)
        return landed(self, key, offset, flight.popped_ms if flight is not None else popped_ms)

    landed = Pops.land
    return [Replacement(Pops, "land", land)]


def _gaps_in_order_forgotten() -> list[Replacement]:
    return [Replacement(Pops, "land", Pops.bury)]


def _pops_acknowledged_early() -> list[Replacement]:
    def add(self: PopAcks, messages: Sequence[PoppedMessage], then: Then) -> None:
        self._messages += messages
        self._thens.append(_nothing)
        then(None)

    return [Replacement(PopAcks, "_add", add)]


def _ends_acknowledged_early() -> list[Replacement]:
    def commit(self: Ends, position: int, half: Half, then: Then) -> None:
        committed(self, position, half, lambda _refusal: None)
        then(None)

    committed = Ends.commit
    return [Replacement(Ends, "commit", commit)]


def _locks_of_two() -> list[Replacement]:
    return [Replacement(QueueLocks, "is_owner", lambda *_: True)]


def _offsets_acknowledged_early() -> list[Replacement]:
    def add(self: OffsetCommits, offset: CommittedOffset, then: Then | None) -> None:
        added(self, offset, None if then is None else _nothing)
        if then is not None:
            then(None)

    added = OffsetCommits.add
    return [Replacement(OffsetCommits, "add", add)]


def _conditions_ignored() -> list[Replacement]:
    return [Replacement(Condition, "is_met", lambda *_: True)]


def _filtered_pulls_go_too_far() -> list[Replacement]:
    def chosen(
        units: bytes, offset: int, max_messages: int, codes: Collection[int] | None
    ) -> Chosen:
        found = choose(units, offset, max_messages, codes)
        behind = offset + len(units) // UNIT_BYTES
        return found if codes is None else found._replace(next_offset=behind)

    return [Replacement(broker.store.message_reader, "choose", chosen)]


def _messages_of_an_entry_swapped() -> list[Replacement]:
    def read(body: bytes, position: int) -> RecordRun | str:
        found = read_run(body, position)
        if isinstance(found, RecordRun):
            for arrived in found.arrivals.values():
                for column in (arrived.places, arrived.sizes, arrived.codes):
                    column.reverse()
        return found

    return [Replacement(broker.messages.fold, "read_run", read)]


def _settings_acknowledged_early() -> list[Replacement]:
    def change(self: SettingsProcessor, origin: Origin, command: Command) -> None:
        changed(self, cast(Origin, _Silent()), command)
        origin.send(command.reply())

    changed = SettingsProcessor.change
    return [Replacement(SettingsProcessor, "change", change)]


def _redrives_acknowledged_early() -> list[Replacement]:
    def send(
        self: RedriveProcessor, origin: Origin, command: Command, queue: Any, outcome: Any
    ) -> None:
        sent(self, cast(Origin, _Silent()), command, queue, outcome)
        origin.send(command.reply(fields=outcome.fields()))

    sent = RedriveProcessor._send
    return [Replacement(RedriveProcessor, "_send", send)]


def _dead_letters_redriven_again() -> list[Replacement]:
    return [Replacement(Redriven, "has", lambda *_: False)]


def _transactions_resumed_again() -> list[Replacement]:
    return [Replacement(broker.transactions.commands, "MAX_ENDS", 0)]


def _given_up_early() -> list[Replacement]:
    return [Replacement(Checks, "_is_hopeless", lambda _, half, _now_ms: half.checks > 0)]


def _earlier_generations_count() -> list[Replacement]:
    return [Replacement(Generations, "counts", lambda *_: True)]


def _members_join_by_any_pull() -> list[Replacement]:
    def pulls(self: Generations, origin: Origin, key: tuple[str, str, int], offset: int) -> bool:
        self.send(origin, key, offset)
        return pulled(self, origin, key, offset)

    pulled = Generations.pulls
    return [Replacement(Generations, "pulls", pulls)]


def _members_stay_through_resets() -> list[Replacement]:
    return [Replacement(Generations, "moved", _nothing)]


def _topics_begin_anew() -> list[Replacement]:
    return [Replacement(EndedTopics, "take", lambda *_: 0)]


def _what_waits_goes_by_name() -> list[Replacement]:
    def is_same(self: TopicChanges, topic: str, _since: int) -> bool:
        return topic in self._topics.configs

    return [Replacement(TopicChanges, "is_same", is_same)]


class _NoChanges:
    """Knows of no deletion of a topic."""

    def is_same(self, _topic: str, _since: int) -> bool:
        return True


def _resumed_for_another_topic() -> list[Replacement]:
    def resume(self: Ends, *members: Any) -> None:
        changes, self._changes = self._changes, cast(TopicChanges, _NoChanges())
        try:
            resumed(self, *members)
        finally:
            self._changes = changes

    resumed = Ends.resume
    return [Replacement(Ends, "resume", resume)]


def _deletions_take_ends_along() -> list[Replacement]:
    def command(*members: Any, **named: Any) -> DeleteTopic:
        return DeleteTopic(*members, **{**named, "keeps_ends": False})

    return [Replacement(broker.topics.changes, "DeleteTopic", command)]


_BUGS: list[tuple[str, str, Callable[[], list[Replacement]]]] = [
    (
        "offsets-outlive-their-topic",
        "the fold keeps the offsets of a topic that is deleted",
        partial(_outlives_its_topic, "offsets"),
    ),
    (
        "locks-outlive-their-topic",
        "the fold keeps the locks of a topic that is deleted",
        partial(_outlives_its_topic, "locks"),
    ),
    (
        "queues-outlive-their-topic",
        "the queues of a topic that is deleted stay",
        _queues_outlive_their_topic,
    ),
    (
        "offsets-of-an-earlier-topic",
        "an offset counts for a topic that was created again since its request",
        _offsets_of_an_earlier_topic,
    ),
    (
        "births-not-in-snapshots",
        "a snapshot lacks where topics were created",
        partial(_not_in_snapshots, "created"),
    ),
    (
        "lock-clock-not-in-snapshots",
        "a snapshot lacks the time of locks",
        partial(_not_in_snapshots, "lock clock"),
    ),
    (
        "queues-not-synced",
        "a snapshot is written before the queues' files are synced",
        _queues_not_synced,
    ),
    (
        "queue-folders-not-synced",
        "a snapshot is written before the names of the queues' files are synced",
        _queue_folders_not_synced,
    ),
    (
        "files-of-another-state-believed",
        "a member goes on with its queues after another member's snapshot",
        _files_of_another_state_believed,
    ),
    (
        "mended-files-believed",
        "queues made again and not synced are believed after a power cut",
        _mended_files_believed,
    ),
    (
        "damaged-files-marked",
        "a snapshot that is written before damaged queues are mended vouches for them",
        _damaged_files_marked,
    ),
    (
        "damaged-queues-served",
        "a member serves as the leader before its damaged queues are mended",
        _damaged_queues_served,
    ),
    (
        "rebuild-ignores-deletions",
        "queues are made again with messages of a topic that was deleted before",
        _rebuild_ignores_deletions,
    ),
    (
        "rebuild-takes-what-was-passed-over",
        "a queue is made again from a log without its beginning with records that were passed over",
        _rebuild_takes_what_was_passed_over,
    ),
    (
        "passed-over-not-in-snapshots",
        "a snapshot lacks which entries were passed over",
        partial(_not_in_snapshots, "passed over"),
    ),
    (
        "file-before-the-first-unit-missing",
        "a queue made again at the beginning of a file looks damaged after a restart",
        _file_before_the_first_unit_missing,
    ),
    (
        "delayed-not-in-snapshots",
        "a snapshot lacks the delayed messages that wait",
        partial(_not_in_snapshots, "delayed"),
    ),
    (
        "delivered-early",
        "delayed messages are delivered before they are due",
        _delivered_early,
    ),
    (
        "delivered-messages-wait-on",
        "a delayed message that was delivered or recalled waits on",
        _delivered_messages_wait_on,
    ),
    (
        "retention-drops-what-waits",
        "the log's beginning is dropped with delayed messages that wait",
        _retention_drops_what_waits,
    ),
    (
        "halves-not-in-snapshots",
        "a snapshot lacks the open transactions",
        partial(_not_in_snapshots, "halves"),
    ),
    (
        "ended-transactions-stay-open",
        "a transaction that was ended can be ended again",
        _ended_transactions_stay_open,
    ),
    (
        "half-messages-seen",
        "a half message is stored in the topic that it was sent to",
        _half_messages_seen,
    ),
    (
        "commits-count-during-resets",
        "what a group commits from before it was moved counts",
        _commits_count_during_resets,
    ),
    (
        "resets-not-in-snapshots",
        "a snapshot lacks where groups were moved to",
        partial(_not_in_snapshots, "resets"),
    ),
    (
        "send-backs-acknowledged-early",
        "a message that is sent back is acknowledged before the log has its copy",
        _send_backs_acknowledged_early,
    ),
    (
        "send-backs-doubled",
        "a message that is sent back comes again twice",
        _send_backs_doubled,
    ),
    (
        "pops-not-in-snapshots",
        "a snapshot lacks what consumers have popped",
        partial(_not_in_snapshots, "pops"),
    ),
    (
        "old-handles-acknowledge",
        "a message that was given again is acknowledged by the consumer that had it before",
        _old_handles_acknowledge,
    ),
    (
        "gaps-in-order-forgotten",
        "an acknowledgement in order counts before those of earlier messages",
        _gaps_in_order_forgotten,
    ),
    (
        "pops-acknowledged-early",
        "the acknowledgement of a pop is answered before the log has it",
        _pops_acknowledged_early,
    ),
    (
        "ends-acknowledged-early",
        "a commit is answered before the log has it",
        _ends_acknowledged_early,
    ),
    (
        "settings-not-in-snapshots",
        "a snapshot lacks the settings that operators changed",
        partial(_not_in_snapshots, "settings"),
    ),
    (
        "settings-acknowledged-early",
        "a change of settings is answered before the log has it",
        _settings_acknowledged_early,
    ),
    (
        "redriven-not-in-snapshots",
        "a snapshot lacks which dead letters were delivered once more",
        partial(_not_in_snapshots, "redriven runs"),
    ),
    (
        "redrives-acknowledged-early",
        "the delivery of dead letters is answered before the log has them",
        _redrives_acknowledged_early,
    ),
    (
        "dead-letters-redriven-again",
        "a dead letter is delivered whenever an operator asks for it",
        _dead_letters_redriven_again,
    ),
    (
        "resumed-not-in-snapshots",
        "a snapshot lacks which transactions were resumed",
        partial(_not_in_snapshots, "resumed transactions"),
    ),
    (
        "transactions-resumed-again",
        "a transaction that was given up is opened whenever an operator asks for it",
        _transactions_resumed_again,
    ),
    (
        "given-up-early",
        "a transaction is given up after one question",
        _given_up_early,
    ),
    (
        "earlier-generations-count",
        "what a member commits from before its group was moved counts",
        _earlier_generations_count,
    ),
    (
        "members-join-by-any-pull",
        "a member that pulls as before its group was moved is taken for one that knows",
        _members_join_by_any_pull,
    ),
    (
        "members-stay-through-resets",
        "a member that knows of one move of its group is taken to know of the next",
        _members_stay_through_resets,
    ),
    (
        "topics-begin-anew",
        "the fold forgets where a topic ended that is made again",
        _topics_begin_anew,
    ),
    (
        "deletions-take-ends-along",
        "a leader deletes topics as in an earlier format of the log",
        _deletions_take_ends_along,
    ),
    (
        "ended-topics-not-in-snapshots",
        "a snapshot lacks where deleted topics ended",
        partial(_not_in_snapshots, "ended topics"),
    ),
    (
        "what-waits-goes-by-name",
        "delayed messages and transactions go to a topic that was made again under the name",
        _what_waits_goes_by_name,
    ),
    (
        "resumed-for-another-topic",
        "a transaction is resumed though its topic was deleted and made again",
        _resumed_for_another_topic,
    ),
    (
        "locks-of-two",
        "a queue is given to whoever asks for it",
        _locks_of_two,
    ),
    (
        "offsets-acknowledged-early",
        "a commit of an offset is answered before the log has it",
        _offsets_acknowledged_early,
    ),
    (
        "conditions-ignored",
        "a pull with a condition is given every message",
        _conditions_ignored,
    ),
    (
        "filtered-pulls-go-too-far",
        "a pull by tags passes over messages that it had no room for",
        _filtered_pulls_go_too_far,
    ),
    (
        "messages-of-an-entry-swapped",
        "the messages of one queue that share an entry are indexed in the wrong order",
        _messages_of_an_entry_swapped,
    ),
]

BROKER_BUGS = {name: SeededBug(name, what, make) for name, what, make in _BUGS}
