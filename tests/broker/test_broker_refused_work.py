"""Whatever a leader proposes is refused once, in each way: it is done later, in the same term.

One script uses all that leaders do by themselves. It runs once undisturbed, and then once for each
append and each way to refuse it. Clients repeat what was refused.

After each step the script also has everything looked at that a later tick would look at, while the
clock stands still. Nothing may come of it: what could be done was done, without a tick.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final, cast

import pytest

from broker.assignment.commands import SetMode
from broker.delay.deliveries import DELIVERIES
from broker.delay.state import DELAYS
from broker.features import REGISTRY
from broker.filters.commands import PutFilter
from broker.formats.commands import RaiseFormat
from broker.groups.commands import DeleteGroup, Forbid, PutGroup
from broker.groups.config import ConsumerGroup
from broker.locks.commands import LockQueues
from broker.log.entry import EntryKind, is_record, kind_of, read_log_command
from broker.log.folded import EntryRefused
from broker.messages.record_facts import record_size
from broker.offsets.state import OFFSETS
from broker.pop.state import POPS
from broker.relays.commands import LeadFrom
from broker.resets.commands import EndReset, ResetOffsets
from broker.retention.commands import KeepLogFrom
from broker.serving.requests import Requests
from broker.settings.commands import ChangeSettings
from broker.topics.commands import PutTopic
from broker.topics.names import GIVEN_UP_TOPIC
from broker.transactions.state import TRANSACTIONS
from dledger import Appended, Body, Discarded, DLedgerError, LogFull, NotLeader
from dledger.entry import stamped_body
from remoting.bodies.heartbeat import (
    ConsumerData,
    Heartbeat,
    SubscriptionData,
    encode_heartbeat,
)
from remoting.message.message_id import parse_message_id
from remoting.message.properties import encode_properties
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.broker_in_memory import BrokerInMemory, MemoryLog, broker_in_memory
from tests.broker.one_broker import START_MS
from tests.broker.popping_broker import popped

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
        kinds: of commands, alone or behind records.
    """

    def __init__(self, log: MemoryLog, number: int, refuse: Refuse) -> None:
        self._log = log
        self._submit = log.submit
        self._number = number
        self._refuse = refuse
        self.appends = 0
        self.kinds: set[int] = set()
        self.later: list[Callable[[], None]] = []

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        self.appends += 1
        self.kinds.update(kind for body in bodies for kind in kinds_of(body))
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
    if any(PutTopic.kind in kinds_of(body) for body in bodies):
        # There are too many topics, which is final: a message says that another is missing.
        log.submit(bodies, done)
        return
    refused = [Appended(1, 1, 1, EntryRefused("a reason")) for _ in bodies]
    log.later.append(lambda: done(refused))


def kinds_of(body: Body) -> Iterator[int]:
    """The kinds of the commands in an entry."""
    content = bytes(stamped_body(body, 0))
    if is_record(content):
        content = content[record_size(content) :]
    if kind_of(content) is EntryKind.COMMAND:
        yield read_log_command(content).kind


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
        reply = self.answer_to(self.begin(code, body, **fields))
        assert reply is not None, f"no answer to {code}, {fields}"
        return reply

    def begin(self, code: int, body: bytes = b"", **fields: Any) -> int:
        """Ask without waiting for the answer; by the number that is returned it is found later."""
        command = self.command(code, body, **fields)
        self.there.requests.on_commands(cast(Connection, self.there.client), [command])
        self.settle()
        return command.opaque

    def command(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        self.there._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        return Command(code, texts, body, opaque=self.there._opaque)

    def answer_to(self, number: int) -> Command | None:
        """The answer, if there is one."""
        return self.there._answers.pop(number, None)

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
        queues: dict[str, Any] = {"readQueueNums": 1, "writeQueueNums": 1}
        self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, perm=6, **queues)

    def pop(self, **more: Any) -> Command:
        return self.ask(RequestCode.POP_MESSAGE, **pop_fields(**more))


def pop_fields(topic: str = "P", poll_ms: int = 0, **more: Any) -> dict[str, Any]:
    return {
        **{"consumerGroup": "g", "topic": topic, "queueId": 0, "maxMsgNums": 1},
        **{"invisibleTime": 1000, "pollTime": poll_ms, "initMode": 0, **more},
        "bornTime": START_MS if poll_ms else 0,
    }


def pull_fields(topic: str, offset: int) -> dict[str, Any]:
    return {
        **{"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": offset},
        **{"maxMsgNums": 32, "sysFlag": 2 | 4, "commitOffset": 0, "subVersion": 0},
        **{"suspendTimeoutMillis": 15_000, "subscription": "*"},
    }


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
    # Acknowledgements, offsets, and a message that is hidden longer.
    script.topic("Q")
    for _ in range(3):
        script.send("Q")
    for do in ("acknowledge", "hide", "acknowledge"):
        [one] = popped(script.pop(topic="Q", invisibleTime=5000))
        message: dict[str, Any] = {
            "consumerGroup": "g",
            "topic": "Q",
            "queueId": 0,
            "extraInfo": one.handle,
        }
        message["offset"] = one.record.queue_offset
        if do == "hide":
            code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
            script.ask(code, invisibleTime=3_600_000, **message)
        else:
            script.ask(RequestCode.ACK_MESSAGE, **message)
    committed: dict[str, Any] = {
        "consumerGroup": "h",
        "topic": "T",
        "queueId": 0,
        "commitOffset": 3,
    }
    script.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **committed)
    # What nobody ends is asked about, given up at last, and opened once more by an operator.
    script.at(script.now_s + 70)
    script.leap(100 * 3600)
    script.at(script.now_s + PATIENCE_S)
    lost = script.there.messages(GIVEN_UP_TOPIC)[0]
    message_id = f"7F00000100002A9F{lost.physical_offset:016X}"
    script.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=message_id)
    script.leap(100 * 3600)
    script.at(script.now_s + PATIENCE_S)


def outcome(script: Script) -> dict[str, object]:
    """What must be the same at the end, whatever was refused on the way."""
    state = script.there.machine.state
    topics = ("T", "%DLQ%g", "%RETRY%g", GIVEN_UP_TOPIC)
    return {
        "waiting": len(state[DELAYS].waiting),
        "open": len(state[TRANSACTIONS].halves),
        "ends": Counter(end.name for end in state[TRANSACTIONS].ends.values()),
        "out": state[POPS].flying,
        "offsets": {key: dict(table) for key, table in state[OFFSETS].tables.items()},
        "in memory": kept_in_memory(script.there.requests),
        **{topic: Counter(one.body for one in script.there.messages(topic)) for topic in topics},
    }


def objects_below(requests: Requests) -> Iterator[object]:
    """All objects that features keep."""
    seen: set[int] = set()
    left: list[object] = [requests]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            left += [cell.cell_contents for cell in one.__closure__ or ()]
            continue
        is_ours = type(one).__module__.startswith("broker.")
        if is_ours or isinstance(one, MethodType | partial | dict | list | tuple | set | deque):
            yield one
            left += gc.get_referents(one)


def kept_in_memory(requests: Requests) -> Counter[str]:
    """What features keep: the sizes of their collections, and flags, by class and attribute."""
    found: Counter[str] = Counter()
    for one in objects_below(requests):
        for name, value in getattr(one, "__dict__", {}).items():
            place = f"{type(one).__name__}.{name}"
            if isinstance(value, bool):
                found[place] += value
            elif isinstance(value, set | dict | list | deque):
                found[place] += len(value)
    return +found


def played(number: int, refuse: Refuse) -> tuple[Refusing, dict[str, object]]:
    with broker_in_memory() as there:
        refusing = Refusing(there.log, number, refuse)
        script = Script(there, refusing)
        play(script)
        return refusing, outcome(script)


def undisturbed() -> tuple[Refusing, dict[str, object]]:
    refusing, wanted = played(-1, by_a_full_log)
    return refusing, wanted


def check_done_later(refusals: Iterable[tuple[int, str]], wanted: dict[str, object]) -> None:
    """Play the script with each of these refusals: an append, and the way."""
    failures = []
    in_memory = cast(Counter[str], wanted.pop("in memory")).keys()
    for number, way in refusals:
        try:
            _, found = played(number, WAYS[way])
        except AssertionError as error:
            failures.append(f"append {number}, refused {way}: {error}")
            continue
        left = cast(Counter[str], found.pop("in memory")).keys() - in_memory
        odd = {key: (found[key], wanted[key]) for key in wanted if found[key] != wanted[key]}
        if left:
            odd["left in memory"] = (left, ())
        if odd:
            failures.append(f"append {number}, refused {way}: {odd}")
    assert not failures, "\n".join(failures)


def test_all_that_a_leader_proposes_is_done_later_when_it_was_refused_once() -> None:
    refusing, wanted = undisturbed()
    ways = list(WAYS)
    check_done_later(((at, ways[at % len(ways)]) for at in range(refusing.appends)), wanted)


@pytest.mark.long
def test_all_that_a_leader_proposes_is_done_later_in_whichever_way_it_was_refused() -> None:
    refusing, wanted = undisturbed()
    check_done_later(((at, way) for at in range(refusing.appends) for way in WAYS), wanted)


# What is not in the script, with the reason.
NOT_PLAYED: Final = {
    **dict.fromkeys(
        (SetMode, DeleteGroup, Forbid, ChangeSettings, ResetOffsets, LockQueues),
        "a client asks for it, and is told that it was refused: nothing of it stays",
    ),
    PutFilter: "comes with each heartbeat once more",
    EndReset: "comes with each pull once more",
    KeepLogFrom: "see test_broker_retention",
    LeadFrom: "see test_broker_group_door",
    RaiseFormat: "see test_broker_format_gate",
}


def test_the_script_has_leaders_propose_every_other_kind_of_command() -> None:
    refusing, _ = undisturbed()
    commands = {one.command for one in REGISTRY.commands()}
    assert {one for one in commands if one.kind not in refusing.kinds} == NOT_PLAYED.keys()


# --- what waits for the log -----------------------------------------------------------------------


def a_send(script: Script) -> None:
    script.send("T", b"new")


def a_commit(script: Script) -> None:
    script.end(script.send("T", b"half", TRAN_MSG="true", PGROUP="P"), 8)


def a_delivery(script: Script) -> None:
    script.send("T", b"soon", TIMER_DELIVER_MS=str(START_MS + 5))
    script.there.now_ms += 10
    script.now_s += 0.01
    script.settle()


def a_deletion(script: Script) -> None:
    script.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")


def a_reset(script: Script) -> None:
    reset: dict[str, Any] = {"group": "g", "topic": "T", "timestamp": 0, "isForce": "true"}
    script.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)


def a_new_leader(script: Script) -> None:
    script.there.log.is_ready_leader = False
    script.there.requests.follow_role()


CAUSES: Final = (a_send, a_commit, a_delivery, a_deletion, a_new_leader)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        *((cause, kind) for cause in CAUSES for kind in ("pull", "pop", "pop in order")),
        # A pop that waits goes on where its group was moved to, with what comes there.
        (a_reset, "pull"),
    ],
)
def test_what_waits_for_the_log_is_answered_without_a_tick(
    cause: Callable[[Script], None], kind: str
) -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("T")
        script.ask(RequestCode.HEART_BEAT, encode_heartbeat(Heartbeat("c", ["P"])))
        there.fold(PutGroup(ConsumerGroup("g")))
        if kind == "pull":
            waits = script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 0))
        else:
            order = str(kind == "pop in order").lower()
            fields = pop_fields("T", 15_000, order=order)
            waits = script.begin(RequestCode.POP_MESSAGE, **fields)
        assert script.answer_to(waits) is None
        cause(script)
        assert script.answer_to(waits) is not None
        script.check_nothing_is_left_to_a_tick()


def test_a_pop_in_order_that_waits_for_another_goes_on_without_a_tick() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("P")
        script.send("P", b"first")
        script.send("P", b"second")
        [first] = popped(script.pop(order="true", invisibleTime=60_000))
        waits = script.begin(RequestCode.POP_MESSAGE, **pop_fields(poll_ms=15_000, order="true"))
        assert script.answer_to(waits) is None
        message: dict[str, Any] = {"consumerGroup": "g", "topic": "P", "queueId": 0, "offset": 0}
        script.ask(RequestCode.ACK_MESSAGE, extraInfo=first.handle, **message)
        found = script.answer_to(waits)
        assert found is not None
        assert [one.body for one in popped(found)] == [b"second"]


def test_pops_that_wait_for_one_queue_are_all_answered_without_a_tick() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("P")
        wait = [
            script.begin(RequestCode.POP_MESSAGE, **pop_fields(poll_ms=15_000)) for _ in range(3)
        ]
        properties = encode_properties({"UNIQ_KEY": "key"}).decode()
        sends = [
            script.command(
                RequestCode.SEND_MESSAGE_V2,
                b"message %d" % number,
                **{"a": "P", "b": "P", "c": "TBW102", "d": 1, "e": 0, "f": 0},
                **{"g": START_MS, "h": 0, "i": properties, "j": 0, "k": "false"},
            )
            for number in range(3)
        ]
        there.requests.on_commands(cast(Connection, there.client), sends)
        script.settle()
        found = [script.answer_to(number) for number in wait]
        bodies = [popped(reply)[0].body for reply in found if reply is not None]
        assert bodies == [b"message 0", b"message 1", b"message 2"]


def test_what_is_in_retentions_way_moves_without_a_tick() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("T")
        script.send("T", TIMER_DELAY_SEC="40")
        end = there.log.end
        there.parts[DELIVERIES].move_before(end)
        script.settle()
        first = there.machine.state[DELAYS].waiting.first_position()
        assert first is not None
        assert first >= end
        script.check_nothing_is_left_to_a_tick()


def test_nothing_of_a_client_is_kept_when_its_connection_has_ended() -> None:
    with broker_in_memory() as there:
        script = Script(there, Refusing(there.log, -1, by_a_full_log))
        script.topic("T")
        script.topic("P")
        member = ConsumerData("g", subscriptions=[SubscriptionData("T", "*")])
        beat = encode_heartbeat(Heartbeat("c", ["P"], [member]))
        script.ask(RequestCode.HEART_BEAT, beat)
        script.send("T")
        script.send("P")
        script.send("T", TRAN_MSG="true", PGROUP="P")
        script.pop()
        script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 1))
        script.begin(RequestCode.POP_MESSAGE, **pop_fields("T", 15_000))
        script.begin(RequestCode.POP_MESSAGE, **pop_fields("P", 15_000, order="true"))
        reset: dict[str, Any] = {"group": "g", "topic": "T", "timestamp": 0, "isForce": "true"}
        script.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
        script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 0))
        script.begin(RequestCode.PULL_MESSAGE, **pull_fields("T", 1))
        assert references_to(there.client, there.requests)
        there.requests.on_close(cast(Connection, there.client))
        script.at(70)
        assert references_to(there.client, there.requests) == []


def references_to(client: object, requests: Requests) -> list[str]:
    """The classes of a broker's objects that still know a client."""
    return [
        f"{type(one).__name__}: {type(each).__name__}"
        for one in objects_below(requests)
        for each in gc.get_referents(one)
        if each is client
    ]
