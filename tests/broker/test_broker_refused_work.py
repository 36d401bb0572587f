"""Whatever a leader proposes is refused once, in each way: it is done later, in the same term.

One script uses all that leaders do by themselves. It runs once undisturbed, and then once for each
append and each way to refuse it. Clients repeat what was refused.

After each step the script also has everything looked at that a later tick would look at, while the
clock stands still. Nothing may come of it: what could be done was done, without a tick.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from broker.delay.deliveries import DELIVERIES
from broker.delay.state import DELAYS
from broker.log.entry import EntryKind, kind_of, read_log_command
from broker.log.folded import EntryRefused
from broker.pop.state import POPS
from broker.topics.commands import PutTopic
from broker.transactions.state import TRANSACTIONS
from dledger import Appended, Body, Discarded, DLedgerError, LogFull, NotLeader
from dledger.entry import stamped_body
from remoting.bodies.heartbeat import Heartbeat, encode_heartbeat
from remoting.message.message_id import parse_message_id
from remoting.message.properties import encode_properties
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.broker_in_memory import BrokerInMemory, MemoryLog, broker_in_memory
from tests.broker.one_broker import START_MS

Done = Callable[[list[Appended] | DLedgerError], None]

# Longer than any pause after a refusal, until the leader tries again.
PATIENCE_S: Final = 30


class Refusing:
    """Stands before the log of a broker, and refuses one append.

    Args:
        log: the log.
        number: of the append, from 0.
        refuse: how.

    Attributes:
        appends: how many there were.
    """

    def __init__(self, log: MemoryLog, number: int, refuse: Refuse) -> None:
        self._log = log
        self._submit = log.submit
        self._number = number
        self._refuse = refuse
        self.appends = 0
        self.later: list[Callable[[], None]] = []

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        self.appends += 1
        if self.appends - 1 == self._number:
            self._refuse(self, bodies, done)
        else:
            self._submit(bodies, done)

    def settle(self) -> None:
        later, self.later = self.later, []
        for tell in later:
            tell()


Refuse = Callable[[Refusing, Sequence[Body], Done], None]


def by_a_full_log(log: Refusing, _bodies: Sequence[Body], _done: Done) -> None:
    """What it is full of is applied after a while."""
    log.later.append(lambda: log.submit([b"foreign"], lambda _outcome: None))
    raise LogFull(10, 10)


def as_another_leads(_log: Refusing, _bodies: Sequence[Body], _done: Done) -> None:
    raise NotLeader("n1", 1)


def after_a_while(log: Refusing, _bodies: Sequence[Body], done: Done) -> None:
    log.later.append(lambda: done(Discarded(1, 1)))


def by_the_fold(log: Refusing, bodies: Sequence[Body], done: Done) -> None:
    if any(is_of(PutTopic, body) for body in bodies):
        # There are too many topics, which is final: a message says that another is missing.
        log.submit(bodies, done)
        return
    refused = [Appended(1, 1, 1, EntryRefused("a reason")) for _ in bodies]
    log.later.append(lambda: done(refused))


def is_of(command: type[PutTopic], body: Body) -> bool:
    content = bytes(stamped_body(body, 0))
    is_command = kind_of(content) is EntryKind.COMMAND
    return is_command and read_log_command(content).kind == command.kind


WAYS: Final[dict[str, Refuse]] = {
    way.__name__.replace("_", " "): way
    for way in (by_a_full_log, as_another_leads, after_a_while, by_the_fold)
}


class Script:
    """Clients of one broker, and the leader's clock."""

    def __init__(self, there: BrokerInMemory, refusing: Refusing) -> None:
        self.there = there
        self.now_s = 0.0
        self._refusing = refusing
        self._woken = True
        self._deliver_at = 0.0
        there.log.submit = refusing.submit  # type: ignore[method-assign]
        there.parts[DELIVERIES].on_sooner = self._wake

    def _wake(self) -> None:
        self._woken = True

    # --- the broker's tasks -----------------------------------------------------------------------

    def settle(self) -> None:
        """All that needs no tick: appends, and deliveries that were woken or are due."""
        while True:
            self.there.log.settle()
            self._refusing.settle()
            if self._woken or self.now_s >= self._deliver_at:
                self._woken = False
                self._deliver_at = self.now_s + self.there.parts[DELIVERIES].deliver()
            elif not self.there.log._pending and not self._refusing.later:
                return

    def at(self, seconds: float) -> None:
        """Let it be so late, with a tick in each second on the way, and all be done."""
        while self.now_s < seconds:
            self.now_s = min(seconds, self.now_s + 1.0)
            self.there.now_ms = START_MS + round(self.now_s * 1000)
            self.there.requests.tick()
            self.settle()
        self.check_nothing_is_left_to_a_tick()

    def leap(self, seconds: float) -> None:
        """Let it be so late, without ticks on the way."""
        self.now_s += seconds

    def check_nothing_is_left_to_a_tick(self) -> None:
        """A further tick and a further look find nothing to do."""
        before = self._refusing.appends, self.there.log.end
        self.there.requests.tick()
        self.there.log.settle()
        self.there.parts[DELIVERIES].deliver()
        self.there.log.settle()
        assert (self._refusing.appends, self.there.log.end) == before

    # --- clients ----------------------------------------------------------------------------------

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """Ask until it is taken, as clients do."""
        for _ in range(3):
            reply = self._asked(code, body, fields)
            if reply.code in (0, 210):
                return reply
            self.at(self.now_s + 2)
        raise AssertionError(reply)

    def _asked(self, code: int, body: bytes, fields: dict[str, Any]) -> Command:
        there = self.there
        there._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        command = Command(code, texts, body, opaque=there._opaque)
        there.requests.on_commands(cast(Connection, there.client), [command])
        self.settle()
        assert there._opaque in there._answers, f"no answer to {command}"
        return there._answers.pop(there._opaque)

    def send(self, topic: str, body: bytes = b"x", queue_id: int = 0, **pairs: str) -> Command:
        properties = encode_properties({"UNIQ_KEY": "key", **pairs}).decode()
        is_half = 4 if "TRAN_MSG" in pairs else 0
        return self.ask(
            RequestCode.SEND_MESSAGE_V2,
            body,
            **{"a": "P", "b": topic, "c": "TBW102", "d": 1, "e": queue_id, "f": is_half},
            **{"g": START_MS, "h": 0, "i": properties, "j": 0, "k": "false"},
        )

    def end(self, half: Command, how: int) -> None:
        self.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            tranStateTableOffset=half.fields["queueOffset"],
            commitLogOffset=parse_message_id(half.fields["msgId"]).physical_offset,
            commitOrRollback=how,
        )

    def topic(self, name: str) -> None:
        queues = {"readQueueNums": 1, "writeQueueNums": 1}
        self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, perm=6, **queues)

    def pop(self, group: str = "g", invisible_ms: int = 1000, **more: Any) -> Command:
        fields = {
            **{"consumerGroup": group, "topic": "P", "queueId": 0, "maxMsgNums": 1},
            **{"invisibleTime": invisible_ms, "pollTime": 0, "bornTime": 0, "initMode": 0},
        }
        return self.ask(RequestCode.POP_MESSAGE, **{**fields, **more})


def play(script: Script) -> None:
    """All that a leader does by itself or for clients, each once at least."""
    for name in ("T", "P", "gone"):
        script.topic(name)
    script.ask(RequestCode.HEART_BEAT, encode_heartbeat(Heartbeat("c", ["P"])))
    # Delayed messages: delivered, moved out of retention's way, and of a topic that goes.
    script.send("T", b"later", DELAY="1")
    script.send("T", b"at a time", TIMER_DELAY_SEC="40")
    script.send("gone", b"never", TIMER_DELAY_SEC="3")
    halves = [
        script.send("T", b"half %d" % n, TRAN_MSG="true", PGROUP=group)
        for n, group in enumerate(("P", "P", "nobody", "P"))
    ]
    late = script.send("T", b"late half", TRAN_MSG="true", PGROUP="P", TIMER_DELAY_SEC="60")
    script.end(halves[0], 8)
    script.end(halves[1], 12)
    script.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="gone")
    script.there.move_everything()
    script.now_s = (script.there.now_ms - START_MS) / 1000
    script.at(20)
    script.end(late, 8)
    # A message that fails until it is a dead letter, by pops and by being sent back.
    script.send("P", b"worn out")
    for _ in range(20):
        script.pop()
        script.at(script.now_s + 3)
    script.send("T", b"sent back")
    found = [one for one in script.there.messages("T") if one.body == b"sent back"]
    script.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        group="g",
        offset=found[0].physical_offset,
        delayLevel=-1,
    )
    script.ask(
        RequestCode.REDRIVE_DEAD_LETTERS,
        consumerGroup="g",
        target="TOPIC",
        queueId=0,
        beginOffset=0,
    )
    # What nobody ends is asked about, and given up at last.
    script.at(script.now_s + 70)
    script.leap(100 * 3600)
    script.at(script.now_s + PATIENCE_S)


def outcome(script: Script) -> dict[str, object]:
    """What must be the same at the end, whatever was refused on the way."""
    state = script.there.machine.state
    topics = ("T", "%DLQ%g", "%RETRY%g", "TRANS_CHECK_MAX_TIME_TOPIC")
    return {
        "waiting": len(state[DELAYS].waiting),
        "open": len(state[TRANSACTIONS].halves),
        "ends": Counter(end.name for end in state[TRANSACTIONS].ends.values()),
        "out": state[POPS].flying,
        **{topic: Counter(one.body for one in script.there.messages(topic)) for topic in topics},
    }


def played(number: int, refuse: Refuse) -> tuple[Script, Refusing, dict[str, object]]:
    with broker_in_memory() as there:
        refusing = Refusing(there.log, number, refuse)
        script = Script(there, refusing)
        play(script)
        return script, refusing, outcome(script)


def test_all_that_a_leader_proposes_is_done_later_when_it_was_refused_once() -> None:
    _, undisturbed, wanted = played(-1, by_a_full_log)
    failures = []
    for name, way in WAYS.items():
        for number in range(undisturbed.appends):
            try:
                _, _, found = played(number, way)
            except AssertionError as error:
                failures.append(f"append {number}, refused {name}: {error}")
                continue
            if found != wanted:
                different = {
                    key: (found[key], wanted[key]) for key in wanted if found[key] != wanted[key]
                }
                failures.append(f"append {number}, refused {name}: {different}")
    assert not failures, "\n".join(failures)
