"""The broker of one simulated member: the services that ship, without connections."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from broker.access.guard import ACCESS_GUARD
from broker.access.user_changes import RANDOM_BYTES
from broker.admin.settings_processor import SettingsProcessor
from broker.audit.audit_log import AUDIT_LOG
from broker.config import BrokerConfig
from broker.delay.deliveries import DELIVERIES
from broker.delay.state import DELAYS
from broker.formats.gate import READ_BY_ALL
from broker.limits import BrokerLimits
from broker.log.append_outcome import not_leader
from broker.log.entry import encode_log_command
from broker.log.guarded_log import GuardedLog
from broker.log.submissions import Then
from broker.messages.state import MESSAGES
from broker.retention.commands import KeepLogFrom
from broker.retention.kept_back import KEPT_BACK
from broker.sends.entry_room import ENTRY_ROOM, EntryRoom
from broker.services import SERVICES
from broker.serving.parts import NotGiven, Parts
from broker.serving.requests import Requests
from broker.serving.service import Handler, Service
from broker.settings.user_shares import USER_SHARES
from broker.store.rebuild_steps import RebuildSteps
from broker.topics.needs import OPERATE
from broker.transactions.policy import CheckPolicy
from dledger.entry import Body
from dledger.errors import DLedgerError
from dledger.node.append_gate import AppendGate
from dledger.waits.leadership_watch import LeadershipWatch
from dledger.waits.pending_appends import Appended, Done
from dledger.waits.pending_reads import ReadOutcome
from jepsen_like.chance import Chance
from jepsen_like.simulation.broker.broker_member import BrokerMember, MemberLog
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.node_process import NodeProcess
from jepsen_like.simulation.node_settings import GROUP
from jepsen_like.simulation.virtual_node import VirtualNode
from remoting.net.address import Address
from remoting.net.connection import Connection
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.signature import ACCESS_KEY, Credentials
from remoting.wire.users import SEAL_KEY_BYTES, AccessFile

# So few that they are reached. Some of the topics are the broker's own.
LIMITS = BrokerLimits(
    max_topics=19,
    max_groups=9,
    max_offset_tables=15,
    max_waiting_sends=40,
    max_locks=9,
    max_delayed_messages=12,
    max_open_transactions=12,
    append_entries=6,
)
CHECKS = CheckPolicy(after_s=1, every_s=1, max_checks=3)
MOST_WAITING_APPENDS = 20
# The time at the beginning of a run, and how far the clocks of members are apart at most.
BEGIN_MS = 1_700_000_000_000
CLOCKS_APART_MS = 3_000
# How long it takes to tell the name servers, on the average.
ANNOUNCE_MEAN_S = 0.02
# How often a member checks its role and its damaged queues, and removes files of dropped messages
# (the product does it every ten seconds).
LOOK_EVERY_S = 0.3
_PROCESS_ID = 7
ACCESS = AccessFile(Credentials("admin", "admin-secret"), bytes(range(SEAL_KEY_BYTES)))


class Failures(logging.Handler):
    """Keeps what the broker logs as its own defect: an exception that no request may cause."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []
        self.addFilter(lambda record: record.exc_info is not None)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._found.append(f"{record.getMessage()}: {error!r}")

    def check(self, name: str) -> None:
        """Raise InvariantViolated if a defect was logged."""
        if self._found:
            found, self._found = self._found, []
            raise InvariantViolated("no request fails inside the broker", f"{name}: {found[0]}")


class _ProcessLog(MemberLog):
    """Implements `broker.log.replicated_log.Log` for one process."""

    def __init__(self, node: VirtualNode, process: NodeProcess) -> None:
        super().__init__(process.store, process.replica)
        self.max_body_bytes = node.config.store.max_body_bytes
        turn = process.member.turn

        def submit(bodies: Sequence[Body], size: int, done: Done, _at_once: bool) -> None:
            turn.submit(bodies, size, done)
            node.wake()

        config = replace(node.config, max_pending_entries=MOST_WAITING_APPENDS)
        ran = process.member
        self._gate = AppendGate(config, process.replica, ran.pending, turn, submit, ran.room)
        self._watch = LeadershipWatch(GROUP, process.replica)

    @property
    def is_ready_leader(self) -> bool:
        return self._watch.is_ready_leader

    @property
    def term(self) -> int:
        return self._replica.state.term

    def submit(
        self, bodies: Sequence[Body], done: Callable[[list[Appended] | DLedgerError], None]
    ) -> None:
        self._gate.submit(bodies, done)


T = TypeVar("T")


class Client:
    """A client's connection. Implements `broker.serving.origin.Origin`."""

    is_closed = False
    is_behind = False
    is_turn_over = False

    def __init__(
        self,
        answered: Callable[[Command], None],
        asked: Callable[[Command], None] = lambda _command: None,
    ) -> None:
        self.peer = Address("10.0.0.9", 40_000)
        self._answered = answered
        self._asked = asked

    def send(self, command: Command) -> None:
        self._answered(command)

    def send_all(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._answered(command)

    def send_oneway(self, command: Command) -> None:
        self._asked(command)

    def gather(self) -> None:
        """Do nothing: this connection gathers nothing."""

    def write_gathered(self) -> None:
        """Do nothing: this connection gathers nothing."""

    def set_aside(self, command: Command) -> None:
        """Do nothing: this connection counts no bytes."""

    def when_taken(self, then: Callable[[], None]) -> None:
        then()

    def go_on(self, steps: Iterator[object]) -> None:
        """Take all steps at once."""
        deque(steps, 0)


class _AtOnce:
    """Takes all steps at once. Implements `broker.serving.work_in_steps.WorkInSteps`."""

    def later(self, _what: str, steps: Iterator[object]) -> None:
        deque(steps, 0)

    begin = later

    def each(self, _what: str, items: Iterable[T], do: Callable[[T], None]) -> None:
        deque(map(do, items), 0)


class ServedBroker:
    """One process of a broker. It serves when its queues are whole, like the product."""

    def __init__(
        self,
        node: VirtualNode,
        process: NodeProcess,
        member: BrokerMember,
        loop: EventLoop,
        chance: Chance,
        coverage: Coverage,
        failures: Failures,
        read_by_all: Callable[[], int | None],
    ) -> None:
        self.member = member
        self.process = process
        self._node = node
        self._life = node.life
        self._loop = loop
        self._chance = chance
        self._coverage = coverage
        self._failures = failures
        self._skew_ms = chance.randint(-CLOCKS_APART_MS, CLOCKS_APART_MS)
        self._log = GuardedLog(_ProcessLog(node, process))
        parts = Parts(
            config=BrokerConfig(
                group=GROUP,
                node_id=node.name,
                peers={},
                listen=Address("10.0.0.1", 10911),
                directory=Path("/data"),
                limits=LIMITS,
                checks=CHECKS,
                access=ACCESS,
            ),
            log=self._log,
            state=member.broker.state,
            queues=member.broker.queues,
            announce=self._announce,
            confirm=self._confirm,
            work=_AtOnce(),
            led_term=lambda: self.requests.led_term,
            wall_clock_ms=self.wall_clock_ms,
            clock=node.clock_reads,
            process_id=_PROCESS_ID,
            figures=dict,
            made={
                # Names and entries are short here.
                ENTRY_ROOM: EntryRoom(member.broker.state, self._log, copy_bytes=0),
                RANDOM_BYTES: lambda count: bytes(chance.randint(0, 255) for _ in range(count)),
                READ_BY_ALL: read_by_all,
            },
        )
        self._deliveries = parts[DELIVERIES]
        self._kept_back = parts[KEPT_BACK]
        self.requests = Requests(
            GROUP,
            self._log,
            [*services_of(parts), _changes_of_settings(parts)],
            self._confirm,
            self._announce,
            lambda: not member.broker.queues.damaged,
            parts[ACCESS_GUARD].check,
            parts[USER_SHARES].counted,
            parts[AUDIT_LOG].is_recording,
            parts[AUDIT_LOG].record,
        )
        self._steps: RebuildSteps | None = member.mending()
        self.is_serving = False
        self._queues_kept_from = 0
        self._call(self._mend)
        self._look_later()

    @property
    def leads(self) -> bool:
        is_up = self._node.is_up and self._node.life == self._life
        return is_up and self.is_serving and self.requests.led_term is not None

    def wall_clock_ms(self) -> int:
        """Return the machine's wall clock, milliseconds since 1970."""
        return BEGIN_MS + self._skew_ms + int(self._loop.now * 1000)

    def ask(self, client: Client, commands: Sequence[Command]) -> None:
        """Send requests of a client; they are lost while the broker does not serve. Unsigned
        ones are signed as the administrator's.
        """
        for command in commands:
            if ACCESS_KEY not in command.fields:
                ACCESS.admin.sign(command)
        self._call(lambda: self._ask(client, commands))

    def before_requests(self, look: Callable[[], None]) -> None:
        """Call `look` just before the requests that are sent after it, if they arrive."""
        self._call(look)

    def append(self, bodies: Sequence[Body]) -> None:
        """Append entries that no service makes, if this member leads."""
        self._call(lambda: self._append(bodies))

    def drop_log(self, index: int) -> None:
        """Decide as a leader to keep nothing before the segment of an entry."""

        def decide() -> None:
            store, messages = self.process.store, self.member.broker.state[MESSAGES]
            if not self.leads or not store.first_index <= index <= self.applied:
                return
            begin = store.segment_begin(index)
            needed_from = self.member.broker.state.needed_from()
            if needed_from is not None and needed_from < begin.pos:
                self._coverage.count("delayed messages moved out of retention's way")
                self._kept_back.move_before(begin.pos)
            elif begin.first_index > messages.kept_from:
                self._coverage.count("beginnings of the log given up")
                now_ms = self.wall_clock_ms()
                command = KeepLogFrom(begin.first_index, begin.pos, now_ms)
                self._append([encode_log_command(command)])

        self._call(decide)

    @property
    def applied(self) -> int:
        return self.process.replica.state.applied

    @property
    def has_delivered(self) -> bool:
        """Whether all messages that are due by its clock are delivered, as far as it holds them.

        A member that was sent a snapshot lacks the messages before it.
        """
        waiting = self.member.broker.state[DELAYS].waiting
        return not waiting.due(self.wall_clock_ms(), self._log.begin_position, 1)

    # --- in a turn ------------------------------------------------------------------------------

    def _call(self, do: Callable[[], None]) -> None:
        if self._node.life != self._life or not self._node.is_up:
            return

        def checked() -> None:
            do()
            self._failures.check(self._node.name)

        self._node.call(checked)

    def _ask(self, client: Client, commands: Sequence[Command]) -> None:
        if self.is_serving:
            self._coverage.count("requests", len(commands))
            self.requests.on_commands(cast(Connection, client), commands)
            self._check_whole()

    def _check_whole(self) -> None:
        damaged = self.member.broker.queues.damaged
        if damaged and self.requests.led_term is not None:
            raise InvariantViolated(
                "a leader serves only whole queues",
                f"{self._node.name} serves while these are damaged: {sorted(damaged)}",
            )

    def _append(self, bodies: Sequence[Body]) -> None:
        if not self.leads:
            return
        try:
            self._log.submit(bodies, lambda _outcome: None)
        except DLedgerError:
            self._coverage.count("foreign entries refused")
        else:
            self._coverage.count("foreign entries", len(bodies))

    def _announce(self, then: Callable[[], None] | None = None) -> None:
        if then is not None:
            self._loop.after(self._chance.wait_s(ANNOUNCE_MEAN_S), self._call, then)

    def _confirm(self, then: Then) -> None:
        def done(outcome: ReadOutcome) -> None:
            then(None if isinstance(outcome, int) else not_leader(GROUP))

        self.process.member.reads.begin(done)

    # --- housekeeping ---------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._loop.after(self._chance.wait_s(LOOK_EVERY_S), self._look)

    def _look(self) -> None:
        if self._node.life == self._life and self._node.is_up:
            self._call(self._look_now)
            self._look_later()

    def _look_now(self) -> None:
        if not self.is_serving:
            return
        self.requests.follow_role()
        self._check_whole()
        self.requests.tick()
        self._deliveries.deliver()
        if self._steps is None and self.member.broker.queues.damaged:
            self._steps = self.member.mending()
            self._mend()
        if self._steps is not None:
            return
        position = self.member.broker.state[MESSAGES].kept_position
        if position != self._queues_kept_from:
            self._queues_kept_from = position
            for topic, queue_id in sorted(self.member.broker.queues.keys()):
                self.member.broker.queues.remove_files(topic, queue_id, position)
            self._coverage.count("queue files removed by retention")

    def _mend(self) -> None:
        """Rebuild damaged queues, a step at a time; the member goes on in between."""
        steps = self._steps
        if steps is not None and self.member.mend_some(steps):
            self._loop.after(self._chance.wait_s(ANNOUNCE_MEAN_S), self._call, self._mend)
            return
        self._steps = None
        if not self.is_serving:
            self.is_serving = True
            self.member.broker.on_applied = self.requests.applied
        self.requests.follow_role()


def services_of(parts: Parts) -> list[Service]:
    """Return the services of all features but those for the process and its files."""
    found = []
    for service in SERVICES:
        with suppress(NotGiven):
            found.append(service(parts))
    return found


def _changes_of_settings(parts: Parts) -> Service:
    """Return the one service of administrators that needs neither connections nor the node."""
    changes = Handler(SettingsProcessor(parts).change, OPERATE)
    return Service(handlers={RequestCode.UPDATE_BROKER_CONFIG: changes})
