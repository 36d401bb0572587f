"""A leader without network or time whose log refuses one append, and the clients of it."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

from broker.delay.deliveries import DELIVERIES
from broker.log.entry import EntryKind, is_record, kind_of, read_log_command
from broker.log.folded import EntryRefused
from broker.messages.record_facts import record_size
from broker.serving.requests import Requests
from broker.topics.commands import PutTopic
from dledger import Appended, Body, Discarded, DLedgerError, LogFull, NotLeader
from dledger.entry import stamped_body
from remoting.message.message_id import parse_message_id
from remoting.message.properties import encode_properties
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.broker_in_memory import BrokerInMemory, MemoryLog
from tests.broker.one_broker import START_MS

Done = Callable[[list[Appended] | DLedgerError], None]


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

    def refuse_next(self) -> None:
        """Refuse the append that comes next."""
        self._number = self.appends

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


def in_part(log: Refusing, bodies: Sequence[Body], done: Done) -> None:
    """The fold refuses the first of several commands, and takes the others."""
    refused = Appended(1, 1, 1, EntryRefused("a reason"))

    def told(outcome: list[Appended] | DLedgerError) -> None:
        done([refused, *outcome] if isinstance(outcome, list) else outcome)

    log.submit(bodies[1:], told)


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

    def at(self, at_s: float) -> None:
        """Let it be so late, with a tick in each second on the way, and all be done."""
        while self.now_s < at_s:
            self.now_s = min(at_s, self.now_s + 1.0)
            self.there.now_ms = START_MS + round(self.now_s * 1000)
            self.there.requests.tick()
            self.settle()
        self.check_nothing_is_left_to_a_tick()

    def leap(self, for_s: float) -> None:
        """Let it be so late, without ticks on the way."""
        self.now_s += for_s

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
        self.there.together([command])
        self.settle()
        return command.opaque

    def command(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        self.there._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        return Command(code, texts, body, opaque=self.there._opaque)

    def answer_to(self, number: int) -> Command | None:
        """The answer, if there is one."""
        return self.there.answers.pop(number, None)

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
