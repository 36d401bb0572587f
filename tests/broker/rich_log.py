"""A log with each kind of entry, after which no field of a broker's state is as in an empty one."""

from __future__ import annotations

from broker.access.commands import DeleteRules, DeleteUser, PutRules, PutUser, SealedSecret
from broker.access.rules import Rule
from broker.assignment.commands import SetMode
from broker.audit.commands import AuditRequest
from broker.dead_letters.commands import Redrive
from broker.delay.commands import Delay, Deliver, DropDelayed, MoveDelayed
from broker.filters.commands import PutFilter
from broker.formats.commands import RaiseFormat
from broker.groups.commands import DeleteGroup, Forbid, PutGroup
from broker.groups.config import ConsumerGroup
from broker.lite.commands import (
    AckLite,
    EndLite,
    HideLite,
    LiteGiven,
    LiteMessage,
    PopLite,
    PutLite,
    ResetLite,
)
from broker.locks.commands import LockQueues
from broker.log.command_layout import LogCommand
from broker.log.entry import FORMAT_VERSION, encode_log_command
from broker.messages.quarter_counts import QUARTER_MS
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.pop.commands import AckPopped, BuryPopped, HidePopped, Pop, PoppedMessage
from broker.relays.commands import LeadFrom
from broker.resets.commands import EndReset, ResetOffsets
from broker.retention.commands import KeepLogFrom
from broker.settings.commands import ChangeSettings
from broker.topics.commands import DeleteTopic, PutTopic
from broker.transactions.commands import (
    Checked,
    Commit,
    GiveUp,
    MoveHalf,
    Prepare,
    Resume,
    Rollback,
)
from dledger.entry import HEADER_BYTES, Entry
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_record
from tests.broker.log.test_broker_fold import Log

NOW_MS = 1_700_000_000_000


class RichLog:
    """Appends to a log; each record gets the next offset of its queue."""

    def __init__(self) -> None:
        self.log = Log()
        self._next: dict[tuple[str, int], int] = {}
        self._now_ms = NOW_MS

    def say(self, *commands: LogCommand) -> None:
        for command in commands:
            self.log.append(encode_log_command(command))

    def send(self, topic: str, queue_id: int, attached: LogCommand | None = None) -> int:
        """Append a message, later than all before; return the position of its record."""
        self._now_ms += QUARTER_MS
        offset = self._next.get((topic, queue_id), 0)
        self._next[topic, queue_id] = offset + 1
        position = self.log.end + HEADER_BYTES
        record = MessageRecord(
            topic,
            b"body" * (1 + offset),
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=position,
            store_timestamp=self._now_ms,
        )
        behind = b"" if attached is None else encode_log_command(attached)
        self.log.append(encode_record(record) + behind)
        return position


def rich_entries() -> list[Entry]:
    """The entries, in the order of their features."""
    rich = RichLog()
    for feature in (
        _topics_and_groups,
        _access,
        _messages,
        _offsets,
        _locks,
        _delays,
        _transactions,
        _pops,
        _lite,
        _dead_letters,
        _deletions,
    ):
        feature(rich)
    return rich.log.entries


def _topics_and_groups(rich: RichLog) -> None:
    rich.say(
        PutTopic(TopicConfig("A"), 3),
        PutTopic(TopicConfig("B", 3, 2, 4, "MULTI_TAG", 1, True, {"a": "b"}), 4),
        PutTopic(TopicConfig("C"), 5, max_topics=100),
        RaiseFormat(FORMAT_VERSION),
        PutGroup(ConsumerGroup("g", attributes={"priority.factor": "70"}), max_groups=100),
        PutGroup(
            ConsumerGroup(
                *("h", False, False, False, True, 3, 5, False, 20, 7, 8, 9),
                retry_policy='{"type":"x"}',
                subscriptions="[1]",
            )
        ),
        Forbid("g", "A", True, 100),
        Forbid("h", "B", True, 100),
        PutFilter("g", "A", "a > 1", 1, 100),
        PutFilter("h", "B", "a > 2", 7, 100),
        SetMode("A", "g", "POP", 3, 100),
        SetMode("B", "h", "PULL", -1, 100),
        LeadFrom("n0", "localhost:1"),
        LeadFrom("n1", "localhost:2"),
        ChangeSettings({"maxMessageSize": "1000"}, 7),
        ChangeSettings({"fileReservedTime": "48"}, 8),
    )


def _access(rich: RichLog) -> None:
    rules = [Rule("Topic:A", "Pub,Sub", "10.0.0.0/8", "Allow"), Rule("*", "All", "", "Deny")]
    rich.say(
        AuditRequest(1, "admin", "10.0.0.1:1", "AUTH_CREATE_USER", "username=root"),
        PutUser("root", SealedSecret("cm9vdA=="), True, True, False),
        PutUser("reader", SealedSecret("cmVhZGVy"), None, None, None),
        PutUser("gone", SealedSecret("Z29uZQ=="), True, True, None),
        PutUser("reader", None, None, False, True),
        PutRules("reader", "Custom", rules),
        PutRules("reader", "Default", rules[1:]),
        PutRules("gone", "Custom", rules),
        DeleteRules("reader", "Custom", "*"),
        DeleteUser("gone"),
    )


def _messages(rich: RichLog) -> None:
    for queue_id in (0, 1, 0):
        rich.send("A", queue_id)
    rich.send("B", 0)
    rich.log.append_record("A", 0, 1_000)  # out of its place: passed over
    kept = rich.log.entries[-3]
    rich.say(KeepLogFrom(kept.index, kept.pos, NOW_MS))
    rich.log.append_record("A", 1, 1_000)


def _offsets(rich: RichLog) -> None:
    end = rich.log.end
    rich.say(
        CommitOffsets([CommittedOffset("g", "A", 0, 1)], 5, end),
        CommitOffsets([CommittedOffset("h", "B", 1, 9)], 5, end),
        ResetOffsets("g", "A", {0: 1, 1: 0}, NOW_MS, end),
        EndReset("g", "A", 0, 1, NOW_MS),
        ResetOffsets("g", "B", {0: 3}, NOW_MS, end),
    )


def _locks(rich: RichLog) -> None:
    rich.say(
        LockQueues("g", "client 1", True, NOW_MS, [("A", 0), ("A", 1)]),
        LockQueues("h", "client 2", True, NOW_MS + 70_000, [("B", 0)]),
        LockQueues("h", "client 3", True, NOW_MS + 70_001, [("B", 1)]),
    )


def _delays(rich: RichLog) -> None:
    first, second, third, _ = (rich.send("C", 0, Delay(NOW_MS + due)) for due in (5, 3, 4, 9))
    rich.send("A", 0, Deliver(first))
    rich.send("C", 1, MoveDelayed(second))
    rich.say(DropDelayed(third))


def _transactions(rich: RichLog) -> None:
    halves = [rich.send("C", 2, Prepare(f"group {n}", NOW_MS + n)) for n in range(6)]
    rich.say(Checked(NOW_MS + 60, (halves[4], halves[5])))
    rich.send("A", 0, Commit(halves[0]))
    rich.send("A", 1, Commit(halves[1], NOW_MS + 77))
    rich.say(Rollback(halves[2]))
    given_up = rich.send("C", 3, GiveUp(halves[3]))
    rich.send("C", 2, Resume(given_up, "group 3", NOW_MS + 99))
    rich.send("C", 4, MoveHalf(halves[4]))


def _pops(rich: RichLog) -> None:
    for _ in range(6):
        rich.send("B", 1)
    key, end = ("g", "B", 1), rich.log.end
    at = NOW_MS + 100
    again = at + 50
    rich.say(
        Pop(*key, at, at + 10, 0, 3, (0, 1, 2), None, True, end),
        Pop(*key, at, at + 10, 3, 5, (3, 4), None, False, end),
        AckPopped([PoppedMessage(*key, 1, at)]),
        HidePopped(PoppedMessage(*key, 2, at), at + 1, at + 70),
        Pop(*key, again, again + 10, 5, 5, (0, 3), None, False, end),
        HidePopped(PoppedMessage(*key, 3, again), again + 1, again + 80, True, True),
    )
    rich.send("C", 5, BuryPopped(PoppedMessage(*key, 0, again)))
    other = ("h", "B", 1)
    rich.say(
        Pop(*other, at, at + 10, 0, 3, (0, 1, 2), "attempt 1", True, end),
        Pop(*other, again, again + 10, 3, 3, (0, 1, 2), "attempt 2", False, end),
        AckPopped([PoppedMessage(*other, 1, again)]),
    )


def _lite(rich: RichLog) -> None:
    rich.say(PutTopic(TopicConfig("L", 2, 2, 6), 9), PutTopic(TopicConfig("M"), 9))
    most = (100, 100)
    for name in ("a", "b", "a", "d", "b"):
        rich.send("L", 0, PutLite(name, *most))
    rich.send("M", 0, PutLite("a", *most))
    at, end = NOW_MS + 10, rich.log.end
    given = [LiteGiven("a", 0, 2, 0, True), LiteGiven("b", 1, 2, 0, True)]
    rich.say(
        PopLite("g", "L", at, at + 10, "attempt", given, end),
        PopLite("h", "L", at, at + 10, "", [LiteGiven("a", 0, 1, 0, True)], end),
        AckLite([LiteMessage("g", "L", "a", 1, at), LiteMessage("h", "L", "a", 0, at)]),
        HideLite(LiteMessage("g", "L", "b", 1, at), at + 1, at + 5, True),
        PopLite("g", "L", at + 20, at + 30, "", [LiteGiven("b", 2, 2, 1, False)], end),
        ResetLite("h", "L", [("b", 1), ("nothing", 1)], at),
        EndLite("L", ["d"], 1 << 50, 0, at),
        EndLite("M", ["a"], 0, end, at),
    )


def _dead_letters(rich: RichLog) -> None:
    rich.say(PutTopic(TopicConfig("%DLQ%g", 1, 1, 6), 9))
    letters = [rich.send("%DLQ%g", 0) for _ in range(7)]
    for offset, begin in ((0, 0), (3, 2), (2, 2), (6, 2)):
        rich.send("A", 0, Redrive("%DLQ%g", 0, offset, letters[offset], begin))
    rich.send("%DLQ%g", 1)
    rich.send("A", 0, Redrive("%DLQ%g", 1, 0, rich.log.end - 300, 0))


def _deletions(rich: RichLog) -> None:
    rich.say(
        PutTopic(TopicConfig("D"), 10),
        PutTopic(TopicConfig("E"), 11),
        PutTopic(TopicConfig("F"), 11),
    )
    for topic in ("D", "E", "E", "F"):
        rich.send(topic, 0)
    rich.say(
        DeleteTopic("D", 12, True, True),
        DeleteTopic("E", 13, True, True),
        DeleteTopic("F", 13, True, True),
        PutTopic(TopicConfig("F"), 14),
        PutTopic(TopicConfig("G"), 14),
        PutGroup(ConsumerGroup("gone")),
        DeleteGroup("gone", True),
    )
