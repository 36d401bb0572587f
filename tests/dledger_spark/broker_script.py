"""Random logs of a broker: messages, delays, transactions, offsets, pops, retries, dead letters.

A script is a list of steps; each becomes one entry, as a leader would append it after the entries
before. The broker's own fold goes along, so a step can end what an earlier one began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from hypothesis import strategies as st

from broker.audit.commands import AuditRequest
from broker.dead_letters.commands import Redrive
from broker.dead_letters.state import REDRIVEN
from broker.delay.commands import Delay, Deliver, DropDelayed, MoveDelayed
from broker.delay.state import DELAYS
from broker.features import empty_state
from broker.formats.commands import RaiseFormat
from broker.log.command_layout import LogCommand
from broker.log.entry import RUNS_VERSION, encode_log_command
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.pop.commands import AckPopped, BuryPopped, HidePopped, Pop, PoppedMessage
from broker.pop.state import POPS
from broker.relays.commands import LeadFrom
from broker.resets.commands import EndReset, ResetOffsets
from broker.topics.commands import DeleteTopic, PutTopic
from broker.topics.names import HALF_TOPIC
from broker.transactions.commands import Checked, Commit, GiveUp, MoveHalf, Prepare, Rollback
from broker.transactions.state import TRANSACTIONS
from dledger.entry import HEADER_BYTES, Entry
from remoting.bodies.topic_config import TopicConfig
from remoting.message.message_id import message_id
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, encode_record
from remoting.message.topic_names import SCHEDULE_TOPIC

TOPICS = ("A", "B")
GROUPS = ("g", "h")
RETRY, DEAD = "%RETRY%g", "%DLQ%g"
FIRST_MS = 1_700_000_000_000


class Step(NamedTuple):
    """One step. `pick` and `number` choose among what there is; `passes_ms` lets time go by."""

    kind: str
    pick: int = 0
    number: int = 0
    passes_ms: int = 0


KINDS = (
    *("send", "send", "send", "sends", "delay", "deliver", "drop", "move", "half", "check"),
    *("commit", "commit late", "roll back", "give up", "move half", "offsets", "offsets", "stale"),
    *("reset", "end reset", "pop", "pop", "acknowledge", "acknowledge", "hide", "bury"),
    *(
        "retry",
        "send back",
        "dead",
        "redrive",
        "delete",
        "put",
        "foreign",
        "twice",
        "lead",
        "audit",
    ),
)
PASSES_MS = (0, 1, 40, 20_000, 90_000, 700_000)
steps = st.builds(
    Step, st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5), st.sampled_from(PASSES_MS)
)
scripts = st.lists(steps, max_size=60)


def random_step(chance: Random) -> Step:
    """A step for a log that need not shrink."""
    pick, number = chance.randrange(6), chance.randrange(6)
    return Step(chance.choice(KINDS), pick, number, chance.choice(PASSES_MS))


@dataclass
class ScriptedLog:
    """A log while a script writes it.

    Attributes:
        entries: so far.
        results: what the broker's fold made of each; None: taken.
        state: the broker's.
    """

    entries: list[Entry] = field(default_factory=list)
    results: list[EntryRefused | None] = field(default_factory=list)
    state: BrokerState = field(default_factory=empty_state)
    _now_ms: int = FIRST_MS
    _sent: int = 0
    _ids: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _in_ladder: dict[int, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._append(encode_log_command(RaiseFormat(RUNS_VERSION)))
        for topic in (*TOPICS, SCHEDULE_TOPIC, HALF_TOPIC, RETRY, DEAD):
            self._append(encode_log_command(PutTopic(TopicConfig(topic), self._now_ms)))

    @property
    def _pos(self) -> int:
        return 0 if not self.entries else self.entries[-1].body_pos + len(self.entries[-1].body)

    def _append(self, body: bytes) -> None:
        term = 1 + len(self.entries) // 25
        entry = Entry(len(self.entries), term, self._pos, 1, body)
        self.results += fold(self.state, [entry]).results
        self.entries.append(entry)

    def _record(
        self,
        topic: str,
        queue: int = 0,
        before: int = 0,
        at: int = 0,
        of_origin: Mapping[str, str] = MappingProxyType({}),
        **properties: str,
    ) -> bytes:
        """A record of the next message of a queue, `before` others of the entry and `at` bytes.

        `of_origin` are properties that tell of the message which failed.
        """
        self._sent += 1
        pairs = {"UNIQ_KEY": f"k{self._sent}", **properties, **of_origin}
        end = self.state[MESSAGES].queue_end(topic, queue)
        position = self._pos + HEADER_BYTES + at
        port = 10911 + self._sent % 2
        self._ids[topic, queue, end + before] = message_id("127.0.0.1", port, position)
        return encode_record(
            MessageRecord(
                topic,
                b"x" * (self._sent % 3000),
                queue_id=queue,
                queue_offset=end + before,
                physical_offset=position,
                born_timestamp=self._now_ms - self._sent % 7,
                store_timestamp=self._now_ms,
                reconsume_times=int(properties.get("RECONSUMED", "0")),
                born_host="127.0.0.1",
                store_host="127.0.0.1",
                store_port=port,
                properties=encode_properties(pairs),
            )
        )

    def _with(self, record: bytes, command: LogCommand) -> None:
        self._append(record + encode_log_command(command))

    def run(self, script: Sequence[Step]) -> None:
        """Append an entry for each step that finds what it needs."""
        for step in script:
            self._now_ms += step.passes_ms
            self._take(step)

    def _take(self, step: Step) -> None:
        topic, queue = TOPICS[step.pick % 2], step.number % 2
        group = GROUPS[step.number % 2]
        match step.kind:
            case "send":
                self._append(self._record(topic, queue, KEYS=f"a b{step.number}", TAGS="t"))
            case "sends":
                first = self._record(topic, queue)
                self._append(first + self._record(topic, queue, 1, len(first)))
            case "send to both":
                first = self._record(TOPICS[0], queue)
                self._append(first + self._record(TOPICS[1], queue, at=len(first)))
            case "delay":
                record = self._record(SCHEDULE_TOPIC, REAL_TOPIC=topic, REAL_QID=str(queue))
                self._with(record, Delay(self._now_ms + 1000 * step.number))
            case "deliver" | "drop" | "move" | "twice":
                self._end_delay(step, topic, queue)
            case "half":
                record = self._record(HALF_TOPIC, REAL_TOPIC=topic, REAL_QID=str(queue))
                self._with(record, Prepare(group, self._now_ms + 1000))
            case "check" | "commit" | "commit late" | "roll back" | "give up" | "move half":
                self._end_half(step, topic, queue)
            case "offsets" | "stale":
                as_of = self._pos if step.kind == "offsets" else 1
                offsets = [CommittedOffset(group, topic, queue, step.pick + at) for at in range(2)]
                command: LogCommand = CommitOffsets(offsets, self._now_ms, as_of)
                self._append(encode_log_command(command))
            case "reset":
                offsets_of = {queue: step.number, 1 - queue: step.pick}
                command = ResetOffsets(group, topic, offsets_of, self._now_ms, self._pos)
                self._append(encode_log_command(command))
            case "end reset":
                at_ms = self._now_ms if step.number % 2 else None
                self._append(encode_log_command(EndReset(group, topic, queue, step.pick, at_ms)))
            case "pop":
                self._pop(step, group, topic, queue)
            case "acknowledge" | "hide" | "bury":
                self._end_pop(step)
            case "retry" | "dead":
                where = RETRY if step.kind == "retry" else DEAD
                self._append(
                    self._record(
                        where,
                        RECONSUMED=str(step.pick),
                        RETRY_TOPIC=topic,
                        ORIGIN_MESSAGE_ID=f"m{step.number}",
                    )
                )
            case "send back":
                of_origin = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"m{step.number}"}
                of_origin |= {"RECONSUMED": str(step.pick)}
                self._in_ladder[self._pos + HEADER_BYTES] = of_origin
                record = self._record(SCHEDULE_TOPIC, REAL_TOPIC=RETRY, of_origin=of_origin)
                self._with(record, Delay(self._now_ms + 1000 * step.number))
            case "redrive":
                end = self.state[MESSAGES].queue_end(DEAD, 0)
                # No leader proposes to deliver a dead letter once more that was before.
                if end and not self.state[REDRIVEN].has(DEAD, 0, step.pick % end):
                    letter = Redrive(DEAD, 0, step.pick % end, self._pos, 0)
                    copy = self._record(topic, queue)
                    if step.number > 2:
                        of_origin = {"RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"m{step.number}"}
                        copy = self._record(RETRY, of_origin=of_origin)
                    self._with(copy, letter)
            case "delete":
                keeps_ends = step.number % 2 > 0
                delete = DeleteTopic(topic, self._now_ms, keeps_ends, keeps_ends)
                self._append(encode_log_command(delete))
            case "put":
                put = PutTopic(TopicConfig(topic), self._now_ms, max_topics=100)
                self._append(encode_log_command(put))
            case "audit":
                asked = AuditRequest(
                    self._now_ms, f"u{step.pick}", "10.0.0.1:1", "AUTH_CREATE_USER", 'a="b"'
                )
                self._append(encode_log_command(asked))
            case "lead":
                lead = LeadFrom(f"n{step.pick}", "127.0.0.1:1")
                self._append(encode_log_command(lead))
            case _:
                self._append(b"foreign")

    def _end_delay(self, step: Step, topic: str, queue: int) -> None:
        waiting = list(self.state[DELAYS].waiting.captured())
        if not waiting:
            return
        position = waiting[step.pick % len(waiting)].position
        if step.kind == "drop":
            self._append(encode_log_command(DropDelayed(position)))
        elif step.kind == "move":
            of_origin = self._in_ladder.get(position, {})
            if of_origin:
                self._in_ladder[self._pos + HEADER_BYTES] = of_origin
            to = RETRY if of_origin else topic
            record = self._record(SCHEDULE_TOPIC, REAL_TOPIC=to, of_origin=of_origin)
            self._with(record, MoveDelayed(position))
        elif position in self._in_ladder:
            of_origin = self._in_ladder[position]
            self._with(self._record(RETRY, of_origin=of_origin), Deliver(position))
        else:
            self._with(self._record(topic, queue), Deliver(position))

    def _end_half(self, step: Step, topic: str, queue: int) -> None:
        halves = sorted(self.state[TRANSACTIONS].halves)
        if not halves:
            return
        position = halves[step.pick % len(halves)]
        make: dict[str, Callable[[], None]] = {
            "check": lambda: self._append(
                encode_log_command(Checked(self._now_ms + 9, (position, 7)))
            ),
            "commit": lambda: self._with(self._record(topic, queue), Commit(position)),
            "commit late": lambda: self._with(
                self._record(SCHEDULE_TOPIC, REAL_TOPIC=topic), Commit(position, self._now_ms + 99)
            ),
            "roll back": lambda: self._append(encode_log_command(Rollback(position))),
            "give up": lambda: self._with(self._record(topic, queue), GiveUp(position)),
            "move half": lambda: self._with(
                self._record(HALF_TOPIC, REAL_TOPIC=topic), MoveHalf(position)
            ),
        }
        make[step.kind]()

    def _pop(self, step: Step, group: str, topic: str, queue: int) -> None:
        known = self.state[POPS].queues.get((group, topic, queue))
        begins = known is None or step.number == 5
        first = 0 if known is None or begins else known.next_offset
        again = [] if known is None or begins else list(known.in_flight)[: step.pick % 2]
        taken = (*again, *range(first, first + step.pick % 3))
        visible_ms = self._now_ms + 60_000
        pop = Pop(
            *(group, topic, queue, self._now_ms, visible_ms, first, first + step.pick % 3),
            *(taken, ("x" if step.number % 3 == 0 else None), begins, self._pos),
        )
        self._append(encode_log_command(pop))

    def _end_pop(self, step: Step) -> None:
        out = [
            PoppedMessage(*key, offset, flight.popped_ms)
            for key, of in self.state[POPS].queues.items()
            for offset, flight in of.in_flight.items()
        ]
        if not out:
            return
        message = out[step.pick % len(out)]
        if step.kind == "acknowledge":
            missed = message._replace(popped_ms=1)
            self._append(encode_log_command(AckPopped([message, missed])))
        elif step.kind == "hide":
            hidden = HidePopped(message, self._now_ms, self._now_ms + 5)
            self._append(encode_log_command(hidden))
        else:
            origin = self._ids.get(message[1:4], "p1")
            record = self._record(DEAD, RETRY_TOPIC=message.topic, ORIGIN_MESSAGE_ID=origin)
            self._with(record, BuryPopped(message))
