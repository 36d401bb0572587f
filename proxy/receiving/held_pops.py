"""Pops that brokers hold until messages come: a few for all receives that ask for the same."""

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Final

import trio

from dledger.wake_up import WakeUp
from dledger_mq.connection.client import Client
from dledger_mq.connection.topic_route import ClientRoute
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code
from remoting.bodies.message_queue import MessageQueue
from remoting.net.host_shares import HostShares
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

# Pops of one line that wait at a broker at once. A queue has one pop in flight at a time, and a
# topic has some eight queues: more pops would wait behind these, and each costs the broker a
# request and an answer in every twenty seconds.
MOST_POPS_A_LINE: Final = 8

# Pops of this proxy that wait at one broker: as many as a broker lets one connection have. A pop
# cannot be taken back, so it counts until its answer, though its receive has ended.
MOST_POPS: Final = 50_000

# How often the ends of waits are looked at, as often as brokers look at theirs: receives that end
# together cost one wake-up. It is done only while receives wait behind the pops of others.
TICK_S: Final = 0.2

# How long an answer may take after the wait at the broker.
_ANSWER_S: Final = 5.0

# Makes the pop of a receive: for how many seconds it waits.
Makes = Callable[[float], Command]
Late = Callable[[Command], None]


class _Receive:
    """A receive that waits in a line. It ends with an outcome, or without one when another broker
    leads or its time is over.
    """

    __slots__ = ("host", "is_over", "late", "line", "make", "outcome", "task", "tick", "until")

    def __init__(self, line: "_Line", host: str, make: Makes, until: float, late: Late) -> None:
        self.line = line
        self.host = host
        self.make = make
        self.until = until
        self.late = late
        self.task: trio.lowlevel.Task | None = None
        self.tick = 0
        self.is_over = False
        self.outcome: Command | Exception | None = None


class _Line:
    """Receives of a group and topic that ask one broker for the same.

    Attributes:
        waiting: all, the oldest first.
        behind: those of them without a pop of their own.
        pops: how many are at the broker.
        is_filling: pops are being sent.
        watched: has the broker probed while a receive waits.
    """

    __slots__ = ("address", "behind", "is_filling", "key", "pops", "queue", "waiting", "watched")

    def __init__(self, address: str, queue: MessageQueue, key: Hashable) -> None:
        self.address = address
        self.queue = queue
        self.key = key
        self.waiting: dict[_Receive, None] = {}
        self.behind: dict[_Receive, None] = {}
        self.pops = 0
        self.is_filling = False
        self.watched = ExitStack()


class HeldPops:
    """Sends pops, and notices when the broker that holds one does not lead any more.

    Receives that ask for the same stand in a line, of which a few pops wait at the broker. While
    they wait, there is nothing that the others could be given. Messages go to the receive that
    waits for the longest time, and another one has its pop sent.

    A leader that is frozen or cut off closes no connection: brokers that hold pops are probed, and
    a route with another leader ends the pops that the old one holds.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # By topic and broker, then by what they ask for.
        self._lines: dict[tuple[str, str], dict[Hashable, _Line]] = {}
        self._shares: dict[str, HostShares] = {}  # of the pops at each broker
        self._ends: dict[int, dict[_Receive, None]] = {}  # by the tick at which they end
        self._has_ends = WakeUp()
        client.routes.watch(self._route_changed)

    async def ask(
        self,
        address: str,
        queue: MessageQueue,
        alike: Hashable | None,
        host: str,
        make: Makes,
        wait_s: float,
        late: Late,
    ) -> Command | None:
        """Wait for messages; None if another broker leads now, or the time is over.

        Args:
            address: of the leader.
            queue: one of its queues, of the topic.
            alike: equal for receives that can take each other's messages; None for one that can
                not.
            host: of its client.
            make: makes its pop. An error of it is raised on.
            wait_s: how long to wait for messages.
            late: called with an answer that has messages in it and that no receive waits for.

        Raises:
            RemotingError: there is no answer.
            Refused: (42900) too many pops of this host wait at the broker.
        """
        line = self._line(address, queue, object() if alike is None else alike)
        receive = _Receive(line, host, make, trio.current_time() + wait_s, late)
        if not line.waiting:
            line.watched.enter_context(self._client.silence.held_by(address, queue))
        line.waiting[receive] = None
        try:
            if line.pops < MOST_POPS_A_LINE:
                self._send(receive)
            else:
                self._stand_behind(receive)
        except BaseException:
            self._leave(receive)
            raise
        if receive.is_over:
            await trio.lowlevel.checkpoint()
        else:
            receive.task = trio.lowlevel.current_task()

            def give_up(_raise_cancel: object) -> trio.lowlevel.Abort:
                self._leave(receive)
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(give_up)
        if isinstance(receive.outcome, Exception):
            raise receive.outcome
        return receive.outcome

    async def run(self) -> None:
        """End receives that wait behind the pops of others, each at its time, until cancelled."""
        while True:
            if not self._ends:
                await self._has_ends.wait()
            await trio.sleep(TICK_S)
            now = trio.current_time() / TICK_S
            for tick in [tick for tick in self._ends if tick <= now]:
                for receive in list(self._ends.get(tick, ())):
                    self._end(receive, None)

    def _line(self, address: str, queue: MessageQueue, alike: Hashable) -> _Line:
        key = address, alike
        lines = self._lines.setdefault((queue.topic, queue.broker_name), {})
        line = lines.get(key)
        if line is None:
            line = lines[key] = _Line(address, queue, key)
        return line

    def _send(self, receive: _Receive) -> None:
        """Send the pop of a receive. Raises Refused (42900)."""
        line, host = receive.line, receive.host
        shares = self._shares.setdefault(line.address, HostShares(MOST_POPS))
        if not shares.has_room(host):
            raise Refused(
                Code.TOO_MANY_REQUESTS,
                f"{shares.of(host)} receives of host {host} wait at the broker, or have waited "
                "there lately: receive later",
            )
        wait_s = max(receive.until - trio.current_time(), 0.0)
        command = receive.make(wait_s)
        line.pops += 1
        shares.take(host)

        def settle(outcome: Command | RemotingError) -> None:
            line.pops -= 1
            shares.give_back(host)
            if not shares.taken:
                self._shares.pop(line.address, None)
            self._take(receive, outcome)
            self._fill(line)

        remoting = self._client.remoting
        remoting.request_nowait(line.address, command, settle, wait_s + _ANSWER_S)

    def _take(self, sender: _Receive, outcome: Command | RemotingError) -> None:
        """Take the answer to a pop: messages are the oldest receive's, all else its sender's."""
        line = sender.line
        if not (isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS):
            if not sender.is_over:
                self._end(sender, outcome)
        elif line.waiting:
            self._end(next(iter(line.waiting)), outcome)
            if not sender.is_over:
                self._stand_behind(sender)
        else:
            sender.late(outcome)

    def _fill(self, line: _Line) -> None:
        """Send pops of those that stand behind, if there are too few at the broker."""
        if line.is_filling:
            return  # a pop that could not be sent
        line.is_filling = True
        soon = trio.current_time() + TICK_S
        while line.behind and line.pops < min(MOST_POPS_A_LINE, len(line.waiting)):
            # Of receives that wait for as long, the newest one's pop waits longest.
            receive = next(reversed(line.behind))
            if receive.until <= soon:
                receive = max(line.behind, key=lambda one: one.until)
            if receive.until <= soon:
                break
            self._stand_behind_no_more(receive)
            try:
                self._send(receive)
            except Exception as error:  # raised by its `ask`, as if it had not stood behind
                self._end(receive, error)
        line.is_filling = False
        self._forget_if_empty(line)

    def _stand_behind(self, receive: _Receive) -> None:
        receive.line.behind[receive] = None
        receive.tick = int(receive.until / TICK_S) + 1
        self._ends.setdefault(receive.tick, {})[receive] = None
        self._has_ends.set()

    def _stand_behind_no_more(self, receive: _Receive) -> None:
        del receive.line.behind[receive]
        ends = self._ends[receive.tick]
        del ends[receive]
        if not ends:
            del self._ends[receive.tick]

    def _end(self, receive: _Receive, outcome: Command | Exception | None) -> None:
        """End the wait of a receive."""
        receive.outcome = outcome
        self._leave(receive)
        if receive.task is not None:
            trio.lowlevel.reschedule(receive.task)

    def _leave(self, receive: _Receive) -> None:
        line = receive.line
        receive.is_over = True
        if receive in line.behind:
            self._stand_behind_no_more(receive)
        line.waiting.pop(receive, None)
        if not line.waiting:
            line.watched.close()
            self._forget_if_empty(line)

    def _forget_if_empty(self, line: _Line) -> None:
        if line.waiting or line.pops:
            return
        name = line.queue.topic, line.queue.broker_name
        lines = self._lines.get(name, {})
        if lines.get(line.key) is line:
            del lines[line.key]
            if not lines:
                del self._lines[name]

    def _route_changed(self, route: ClientRoute) -> None:
        for broker_name, master in route.masters.items():
            lines = self._lines.get((route.topic, broker_name), {})
            for line in [line for line in lines.values() if line.address != master]:
                # If that broker leads again, pops are sent anew: it may have lost the others.
                lines.pop(line.key, None)
                for receive in list(line.waiting):
                    self._end(receive, None)
            if not lines:
                self._lines.pop((route.topic, broker_name), None)
