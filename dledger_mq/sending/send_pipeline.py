"""Messages in flight: bounded in number and bytes, sent again when a leader is lost.

Messages that the window has no room for wait in their order, and start as soon as an outcome makes
room. Messages that are ready at the same moment go in one request. No message costs a task. One
task makes the further attempts of all messages: it asks for the route at once after the first
failure, then ever more slowly, until each message's time is over.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from dledger.core.patience import Patience
from dledger.wake_up import WakeUp
from dledger_mq.client_metrics import ReportedMetrics
from dledger_mq.connection import requests
from dledger_mq.connection.calls import pause_s
from dledger_mq.connection.client import Client
from dledger_mq.connection.topic_route import ClientRoute, why_not_writable
from dledger_mq.errors import MessagingError, NoMaster, NoNameServers, SendFailed
from dledger_mq.send_result import SendResult
from dledger_mq.sending.batching import Batching, Joined, joined_body
from dledger_mq.sending.composer import BATCH_PROPERTIES
from dledger_mq.sending.compression import Compression
from dledger_mq.sending.selectors import RoundRobin, chosen_queue
from dledger_mq.sending.sending import (
    Acknowledgement,
    Sending,
    SendOutcome,
    acknowledgement,
    is_refused_for_good,
    judge,
)
from remoting.bodies.message_queue import MessageQueue
from remoting.message.properties import properties_text
from remoting.wire.command import Command
from remoting.wire.errors import FieldMissing, RemotingError

_log = logging.getLogger(__name__)

# Brokers answer in milliseconds; more messages in flight would only wait elsewhere.
MAX_IN_FLIGHT: Final = 4096

# Half of the bytes that a connection buffers before it counts the peer as dead.
MAX_IN_FLIGHT_BYTES: Final = 16 * 1024 * 1024

# Brokers answer in milliseconds; after this time without an answer the route is asked for.
SILENCE_S: Final = 1.0

# How often messages that wait for room are checked for giving up; RocketMQ's clients look for late
# answers once a second. Between two checks little more time than this counts: a loop that did not
# run for a while finds the answers of that time in its sockets.
GIVE_UP_S: Final = 0.5

_BATCH_TEXT: Final = properties_text(BATCH_PROPERTIES)

# When a leader is paused for this long, a follower has been elected in its place.
ATTEMPT_TIMEOUT_S: Final = 3.0


class SendPipeline:
    """The messages of one producer between `send` and their outcomes.

    Without `batching`, each message is a request of its own. `on_outcome` is called with each
    message, its outcome, and the seconds since its first attempt; it must not raise.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
        batching: Batching | None = None,
        metrics: ReportedMetrics | None = None,
        on_outcome: Callable[[Sending, SendOutcome, float], None] | None = None,
    ) -> None:
        self.max_in_flight = max_in_flight
        self._client = client
        self._group = group
        self._max_bytes = max_in_flight_bytes
        self._batching = batching
        self._lingers = batching is not None and batching.linger_ms > 0
        # The messages of the next requests, by topic. All are open, so the window bounds them.
        self._gathered: dict[str, list[Sending]] = {}
        self._has_gathered = WakeUp()
        self._metrics = metrics
        self._on_outcome = on_outcome
        self._open: set[Sending] = set()
        self._bytes = 0
        self.compression = Compression(client.side_work, self._compressed)
        self._compressing = 0  # open messages that wait for compression
        self._patience = Patience(GIVE_UP_S, trio.current_time())
        # Messages that wait for room, in order, with the event of the task that waits for the
        # start. Their callers wait, and so bound their number.
        self._waiting: OrderedDict[Sending, trio.Event | None] = OrderedDict()
        self._is_admitting = False
        # Since when answers are outstanding and none has come; None if none is outstanding.
        self._silent_since: float | None = None
        self._idle = trio.lowlevel.ParkingLot()  # until no message is open or waits
        self._turns: dict[str, RoundRobin] = {}
        # By topic: messages to send again, failures in a row, the time of the next attempt.
        self._deferred: dict[str, list[Sending]] = {}
        self._failures: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._wake = WakeUp()
        self._closed = False
        self._cause: BaseException | None = None  # the error that ended the producer

    def now(self) -> float:
        """Return the time of a clock that stops while this process does not run."""
        now = trio.current_time()
        if now >= self._patience.next_look_at:
            self._patience.look(now)
        return now - self._patience.lost_s

    async def run(self) -> None:
        """Make further attempts, send batches and give up, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.compression.run)
            nursery.start_soon(self._send_again)
            nursery.start_soon(self._watch_for_silence)
            nursery.start_soon(self._give_up_waiting)
            nursery.start_soon(self._send_gathered)

    def has_room(self, weight: int) -> bool:
        """Return whether a message of `weight` bytes may start now; any may if none is open."""
        return not self._waiting and self._fits(weight)

    def submit(self, sending: Sending, called_at: float) -> bool:
        """Start a message, or let it wait until the messages before it have started.

        Its callback gets the outcome once, perhaps before this returns. It may wait without limit
        while answers to other messages come. It gives up, and is not sent, if since `called_at`,
        the begin of its user's call by `now`, none has come for its `timeout_s` and at most
        half a second more.

        Returns False if it waits: it has neither started nor given up.
        """
        sending.called_at = called_at
        if self._is_hopeless(sending):
            self._refuse(sending)
        elif self.has_room(sending.weight):
            self.start(sending)
        else:
            self._waiting[sending] = None
            return False
        return True

    async def wait_for_start(self, sending: Sending) -> None:
        """Wait until a submitted message has started, or given up. Cancelling withdraws it."""
        if sending not in self._waiting:
            return
        started = self._waiting[sending] = trio.Event()
        try:
            await started.wait()
        finally:
            self.withdraw(sending)

    def withdraw(self, sending: Sending) -> None:
        """Forget a message if it still waits for room; its callback is not called."""
        if sending in self._waiting:
            del self._waiting[sending]
            self._admit()

    async def drain(self) -> None:
        """Wait until every message has its outcome, at the latest when its time is over."""
        while self._open or self._waiting:
            await self._idle.park()

    def start(self, sending: Sending) -> None:
        """Send a message; its callback gets the outcome once, perhaps before this returns."""
        self._open.add(sending)
        may_go = self._closed or self.compression.passes(sending)
        self._bytes += sending.weight
        if may_go:
            self._begin(sending)
        else:
            self._compressing += 1

    def _compressed(self, sending: Sending, saved_bytes: int) -> None:
        """Go on with a message that waited for its compression, or for that of others before it."""
        if sending not in self._open:
            return  # the producer was closed
        self._compressing -= 1
        self._bytes -= saved_bytes
        self._begin(sending)
        self._admit()

    def _begin(self, sending: Sending) -> None:
        """Make the first attempt, with which the time of the message begins."""
        now = self.now()
        sending.deadline = now + sending.timeout_s
        if self._silent_since is None:
            self._silent_since = now
        if self._closed:
            self._finish(sending, sending.failure())
        else:
            self._attempt(sending)

    def close(self, cause: BaseException | None = None) -> None:
        """End every open message with the outcome that is known now, and with the cause."""
        self._closed = True
        self._cause = cause
        for sending in list(self._waiting):
            self._refuse(sending, "the producer was closed before it was sent")
        for sending in list(self._open):
            sending.reason = "the producer was closed before the answer came"
            # A message that was handed to a connection and not acknowledged may have arrived.
            sending.maybe_stored |= sending.address != ""
            self._finish(sending, sending.failure())

    async def _send_again(self) -> None:
        while True:
            now = trio.current_time()
            due = [topic for topic, when in self._due.items() if when <= now]
            if not due:
                next_time = min(self._due.values(), default=float("inf"))
                with trio.move_on_at(next_time):
                    await self._wake.wait()
            for topic in due:
                await self._send_topic_again(topic)

    async def _give_up_waiting(self) -> None:
        """Refuse messages that wait for room while no answers come, for ever."""
        while True:
            await trio.sleep(GIVE_UP_S)
            self.now()
            for sending in [one for one in self._waiting if self._is_hopeless(one)]:
                self._refuse(sending)

    async def _watch_for_silence(self) -> None:
        """Refresh the routes of messages whose brokers are silent, for ever.

        A broker that is frozen or cut off neither answers nor closes its connection. If another one
        was elected, `route_changed` sends the messages there.
        """
        while True:
            await trio.sleep(SILENCE_S / 2)
            before = self.now() - SILENCE_S
            silent = {
                sending.topic
                for sending in self._open
                if sending.address and sending.attempted_at < before
            }
            for topic in silent:
                try:
                    await self._client.routes.refresh(topic, may_create=True)
                except MessagingError as error:
                    _log.info("no answer from the leader of %s, nor a new one: %s", topic, error)

    def route_changed(self, route: ClientRoute) -> None:
        """Send messages again that wait for a broker that does not lead any more."""
        leaders = set(route.masters.values())
        if not leaders:
            return  # the old leader may still answer, and there is no other broker
        for sending in list(self._open):
            if sending.topic != route.topic or not sending.address:
                continue
            if sending.address not in leaders:
                sending.reason = f"{sending.address} was silent and another leader was elected"
                sending.code = None
                sending.maybe_stored = True
                sending.address = ""
                self._attempt(sending)

    def _fits(self, weight: int) -> bool:
        return not self._open or (
            len(self._open) < self.max_in_flight and self._bytes + weight <= self._max_bytes
        )

    def _admit(self) -> None:
        """Start waiting messages in their order, as far as there is room."""
        if self._is_admitting:
            return  # an outcome came at once: the outer call goes on
        self._is_admitting = True
        try:
            while self._waiting:
                sending = next(iter(self._waiting))
                if self._is_hopeless(sending):
                    self._refuse(sending)
                    continue
                if not self._fits(sending.weight):
                    break
                started = self._waiting.pop(sending)
                self.start(sending)
                if started is not None:
                    started.set()
        finally:
            self._is_admitting = False

    def _is_hopeless(self, sending: Sending) -> bool:
        """Return whether no answer to any message has come for the timeout of this one.

        Otherwise each window of a long list would wait for its whole timeout while no broker
        answers.
        """
        since = self._silent_since
        return since is not None and max(since, sending.called_at) + sending.timeout_s <= self.now()

    def _refuse(self, sending: Sending, reason: str = "") -> None:
        """Give up a message that has not started."""
        started = self._waiting.pop(sending, None)
        if started is not None:
            started.set()
        timeout_s = sending.timeout_s
        sending.reason = reason or f"no broker has answered any message for {timeout_s:g} s"
        self._call_back(sending, sending.failure())

    async def _send_gathered(self) -> None:
        linger_s = self._batching.linger_ms / 1000 if self._batching else 0.0
        while True:
            await self._has_gathered.wait()
            if linger_s:
                await trio.sleep(linger_s)
            for topic in list(self._gathered):
                self._send_gathered_of(topic)

    def _attempt(self, sending: Sending) -> None:
        """Send a message now if no other is open; else with others that are ready."""
        topic = sending.topic
        gathered = self._gathered.get(topic)
        if gathered is None:
            if self._batching is None or (len(self._open) == 1 and not self._lingers):
                self._send_together(topic, [sending])
                return
            self._gathered[topic] = [sending]
            self._has_gathered.set()
            return
        gathered.append(sending)
        if self._batching is not None and len(gathered) >= self._batching.max_messages:
            self._send_gathered_of(topic)

    def _send_gathered_of(self, topic: str) -> None:
        self._send_together(topic, self._gathered.pop(topic, []))

    def _send_together(self, topic: str, sendings: list[Sending]) -> None:
        """Send messages of a topic; defer them if the topic has no route."""
        now = self.now()
        route = self._client.routes.known(topic)
        joined = Joined(self._batching)
        for sending in sendings:
            if sending not in self._open:
                continue  # it was given up meanwhile
            if sending.deadline <= now:
                self._finish(sending, sending.failure())
            elif route is None or not route.write_queues:
                sending.reason = why_not_writable(route)
                sending.code = None
                self._defer(sending)
            elif sending.selector is None:
                joined.add(sending, None)
            else:
                try:
                    queue = chosen_queue(sending.selector, route.write_queues, sending.message)
                except Exception as error:
                    # The selector is the user's. Its error must not end the task that serves all
                    # messages.
                    sending.reason = f"its queue selector failed: {error!r}"
                    self._finish(sending, sending.failure())
                else:
                    joined.add(sending, queue)
        if route is not None:
            for together, chosen in joined.take():
                queue = self._any_queue(route, together[0]) if chosen is None else chosen
                self._request(route, together, queue, now)

    def _any_queue(self, route: ClientRoute, sending: Sending) -> MessageQueue:
        """Return the next queue, of another broker than that of the last attempt if there is
        one.
        """
        failed = sending.queue.broker_name if sending.queue is not None else ""
        return self._turn(route.topic).choose(route.write_queues, failed)

    def _request(
        self, route: ClientRoute, together: list[Sending], queue: MessageQueue, now: float
    ) -> None:
        address = route.masters.get(queue.broker_name)
        if address is None:
            for sending in together:
                sending.reason = str(NoMaster(route.topic, queue.broker_name))
                self._defer(sending)
            return
        for sending in together:
            sending.queue = queue
            sending.address = address
            sending.attempted_at = now
            sending.attempts += 1
            sending.together = together
        left = min([sending.deadline for sending in together]) - now
        self._client.remoting.request_nowait(
            address,
            self._command(together, queue),
            partial(self._answered, together),
            min(left, ATTEMPT_TIMEOUT_S),
        )

    def _command(self, together: list[Sending], queue: MessageQueue) -> Command:
        sending = together[0]
        if len(together) > 1:
            body, properties = joined_body(together), _BATCH_TEXT
        else:
            body, properties = sending.body, properties_text(sending.properties)
        return requests.send(
            self._group,
            queue,
            body,
            properties,
            system_flag=sending.system_flag,
            flag=sending.flag,
            born_ms=sending.born_ms,
            batch=sending.batch or len(together) > 1,
        )

    def _turn(self, topic: str) -> RoundRobin:
        turn = self._turns.get(topic)
        if turn is None:
            identity = self._client.identity
            turn = RoundRobin(identity.process_id + identity.instance)
            self._turns[topic] = turn
        return turn

    def _answered(self, together: list[Sending], answer: Command | RemotingError) -> None:
        count, now = len(together), self.now()
        stored: Acknowledgement | None = None
        unreadable = ""
        try:
            stored = acknowledgement(answer, count)
        except FieldMissing as error:
            unreadable = str(error)
        for at, sending in enumerate(together):
            if sending.together is not together or not sending.address or sending not in self._open:
                continue  # given up by its user, or sent elsewhere
            sending.address = ""
            outcome: SendOutcome | None
            if stored is not None and sending.queue is not None:
                outcome = stored.result(sending, sending.queue, at)
            elif unreadable:
                sending.maybe_stored, sending.reason = True, unreadable
                outcome = sending.failure()
            elif count > 1 and is_refused_for_good(answer):
                sending.goes_alone = True
                self._attempt(sending)
                continue
            else:
                outcome = judge(sending, answer)
            if outcome is None:
                self._defer(sending)
                continue
            if isinstance(answer, Command):
                # After the last message no answer is outstanding.
                outstanding = len(self._open) - self._compressing
                self._silent_since = now if outstanding > 1 else None
            self._finish(sending, outcome)
        if stored is not None:
            self._note_success(together[0].topic)

    def _note_success(self, topic: str) -> None:
        if self._failures:
            self._failures.pop(topic, None)
        route = self._client.routes.known(topic)
        if route is not None and route.provisional:
            # The topic exists now; learn its own queues.
            self._schedule(topic)

    def _defer(self, sending: Sending) -> None:
        """Let a message wait for the next attempt, or fail it when its time is over."""
        if self._closed or sending.deadline <= self.now():
            self._finish(sending, sending.failure())
            return
        topic = sending.topic
        self._deferred.setdefault(topic, []).append(sending)
        self._schedule(topic)

    def _schedule(self, topic: str) -> None:
        """Plan to refresh a topic's route and send its deferred messages: the first time at
        once.
        """
        if topic in self._due:
            return
        failures = self._failures.get(topic, 0)
        self._failures[topic] = failures + 1
        wait_s = pause_s(failures) if failures else 0.0
        self._due[topic] = trio.current_time() + wait_s
        self._wake.set()

    async def _send_topic_again(self, topic: str) -> None:
        """Make one further attempt of all deferred messages of a topic."""
        reason, is_useless = "", False
        try:
            await self._client.routes.refresh(topic, may_create=True)
        except MessagingError as error:
            reason, is_useless = str(error), isinstance(error, NoNameServers)
        del self._due[topic]
        waiting = self._deferred.pop(topic, [])
        if not waiting:
            self._failures.pop(topic, None)
        for sending in waiting:
            if reason:
                sending.reason = reason
                if is_useless:
                    self._finish(sending, sending.failure())
                else:
                    self._defer(sending)
            else:
                self._attempt(sending)

    def _finish(self, sending: Sending, outcome: SendOutcome) -> None:
        """Report the outcome of an open message, and let others start in its place."""
        if sending in self._open:
            self._open.remove(sending)
            self._bytes -= sending.weight
            if self._waiting:
                self._admit()
            self._call_back(sending, outcome)

    def _call_back(self, sending: Sending, outcome: SendOutcome) -> None:
        if self._cause is not None and isinstance(outcome, SendFailed):
            outcome.__cause__ = self._cause
        if not self._open and not self._waiting:
            self._idle.unpark_all()
        if self._metrics is not None or self._on_outcome is not None:
            self._report(sending, outcome)
        try:
            sending.callback(outcome)
        except Exception:
            _log.exception("the callback of a message to %s failed", sending.topic)

    def _report(self, sending: Sending, outcome: SendOutcome) -> None:
        is_started = sending.deadline < float("inf")
        began = sending.deadline - sending.timeout_s if is_started else sending.called_at
        took_s = self.now() - began
        if self._on_outcome is not None:
            self._on_outcome(sending, outcome, took_s)
        if self._metrics is None:
            return
        if isinstance(outcome, SendResult):
            self._metrics.sent(sending.topic, took_s, outcome.attempts)
        else:
            self._metrics.send_failed(sending.topic, outcome, took_s)
