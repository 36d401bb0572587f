"""All requests of clients, and the events on the leader that services hear of.

The requests of one read become at most one append of messages and one of offsets. A reply leaves
the connection when the entries that it confirms are applied.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from broker.errors import RequestRefused
from broker.log.append_outcome import not_leader
from broker.log.folded import Folded
from broker.log.one_by_one import call, call_each
from broker.log.replicated_log import Log
from broker.log.state import add_once
from broker.log.submissions import Then
from broker.serving.not_here import NOT_HERE
from broker.serving.service import Handler, Service, doing_something
from dledger import Fatal
from remoting.net.answering import Steps, answer_each
from remoting.net.connection import Connection
from remoting.net.dispatch import unsupported
from remoting.wire.command import Command


def _record_nothing(_connection: Connection, _command: Command, then: Then) -> None:
    then(None)


class Requests:
    """Implements `remoting.net.server.ConnectionHandler`; follows the member's role.

    Args:
        services: the features' services, called in this order.
        confirm: calls back when the applied state may be read; see `ConfirmedReads.add`.
        announce: tells the name servers of a new leader or of changed topics.
        queues_are_whole: whether the consume queues are complete enough to answer from.
        check_access: raises RequestRefused if a request is not permitted; None permits all.
        records: whether audited requests are recorded in the log.
        record: records a request, then calls back; see `AuditLog.record`.
        counted: returns a callback that counts as a waiting request of a client's user until it is
            called. Raises RequestRefused (2): too many wait.

    Attributes:
        connections: of all clients.
        is_ending: whether it takes no new requests except reads.

    Raises FeatureClash: two services answer the same request code.
    """

    def __init__(
        self,
        broker_name: str,
        log: Log,
        services: Sequence[Service],
        confirm: Callable[[Then], None],
        announce: Callable[[], None],
        queues_are_whole: Callable[[], bool],
        check_access: Callable[[Connection, Command, Handler], None] | None = None,
        counted: Callable[[Connection, Command, Then], Then] = lambda _who, _what, then: then,
        records: Callable[[], bool] = lambda: False,
        record: Callable[[Connection, Command, Then], None] = _record_nothing,
    ) -> None:
        self._broker_name = broker_name
        self._log = log
        self._services = services
        self._confirm = confirm
        self._announce = announce
        self._queues_are_whole = queues_are_whole
        self._check_access = check_access
        self._counted = counted
        self._records = records
        self._record = record
        self._handlers: dict[int, Handler] = {}
        for service in services:
            for code, handler in service.handlers.items():
                add_once(self._handlers, int(code), handler, "the request code")
        # Called for every read and every apply; most services have none.
        self._flushes = doing_something([service.flush for service in services])
        self._appliers = doing_something([service.applied for service in services])
        self._term: int | None = None  # the term this member leads, once it may serve
        self.is_ending = False
        self._has_let_go = False
        self.connections: set[Connection] = set()

    @property
    def led_term(self) -> int | None:
        """The term in which this member leads and serves, or None."""
        return self._term

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """Handlers by request code. All other codes are answered as unsupported."""
        return self._handlers

    # --- connections --------------------------------------------------------------------------

    def on_open(self, connection: Connection) -> None:
        self.connections.add(connection)

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        """Answer requests, or start to, until the client's turn is over."""
        self.follow_role()
        count = answer_each(connection, commands, self._answer)
        if self._term is not None:
            self._flush()
        return count

    def on_close(self, connection: Connection) -> None:
        self.connections.discard(connection)
        for service in self._services:
            call("forgetting a client", service.dropped, connection)

    def _flush(self) -> None:
        call_each("handing what has gathered to the log", self._flushes)

    def _answer(self, connection: Connection, command: Command) -> Command | Steps | None:
        handler = self._handlers.get(command.code)
        if handler is None:
            return unsupported(command, NOT_HERE.get(command.code, ""))
        try:
            if not handler.any_role and (self._term is None or self.is_ending):
                self._check_leads(handler)
            if self._check_access is not None:
                self._check_access(connection, command, handler)
            if handler.is_audited and self._records():
                # A leader whose append is applied is confirmed as well.
                record = partial(self._record, connection, command)
                self._answer_after(record, connection, command, handler)
                return None
            if handler.confirmed:
                self._answer_after(self._confirm, connection, command, handler)
                return None
        except RequestRefused as refusal:
            return _unserved(command, handler, refusal)
        return self._answer_now(connection, command, handler)

    def _answer_now(
        self, connection: Connection, command: Command, handler: Handler
    ) -> Command | Steps | None:
        try:
            reply = handler.answer(connection, command)
        except (RequestRefused, Fatal) as error:
            return _failed(command, handler, error)
        if reply is None or isinstance(reply, Command):
            return reply
        return self._in_steps(command, handler, reply)

    def _in_steps(self, command: Command, handler: Handler, steps: Steps) -> Steps:
        """Answer in steps. This member may lose leadership between them. The last step's
        submissions are flushed last in the turn.
        """
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                reply: Command | None = ended.value
                break
            except (RequestRefused, Fatal) as error:
                return _failed(command, handler, error)
            yield
            self.follow_role()
            if not handler.any_role:
                try:
                    self._check_leads(handler)
                except RequestRefused as refusal:
                    return _unserved(command, handler, refusal)
        if self._term is not None:
            self._flush()
        return reply

    def _check_leads(self, handler: Handler) -> None:
        if self._term is None or (self.is_ending and not handler.while_ending):
            raise not_leader(self._broker_name)

    def _answer_after(
        self,
        begin: Callable[[Then], None],
        connection: Connection,
        command: Command,
        handler: Handler,
    ) -> None:
        """Answer a request when `begin` calls back."""

        def answer_now(connection: Connection, command: Command) -> Command | Steps | None:
            try:
                if not handler.any_role:
                    self._check_leads(handler)
                if handler.is_audited and self._check_access is not None:
                    # Rules may have changed; who asked is recorded already.
                    self._check_access(connection, command, replace(handler, is_audited=False))
            except RequestRefused as refused:
                return _unserved(command, handler, refused)
            return self._answer_now(connection, command, handler)

        def steps() -> Iterator[None]:
            answer_each(connection, [command], answer_now)
            yield

        def then(refusal: RequestRefused | None) -> None:
            if refusal is None:
                # In the client's turn: reads of several clients are confirmed together.
                connection.go_on(steps())
            elif (reply := _unserved(command, handler, refusal)) is not None:
                connection.send(reply)

        counted = self._counted(connection, command, then)
        try:
            begin(counted)
        except RequestRefused as refusal:
            counted(refusal)

    # --- the log ------------------------------------------------------------------------------

    def applied(self, folded: Folded) -> None:
        """Wake what waits for a run of entries that was applied. Never raises."""
        if self._term is None:
            return
        call_each("waking clients after an apply", self._appliers, folded)
        self._flush()
        if folded.topics_changed:
            call("announcing topics", self._announce)

    def follow_role(self) -> None:
        """Begin to serve when this member leads and is ready; stop when it does not.

        Called before every batch, not only when the node reports a change: offsets of one term must
        never be carried into the next. A member may be elected just after it was given a snapshot,
        before its consume queues are rebuilt: until then readers would miss messages.
        """
        leads = self._log.is_ready_leader and not self._has_let_go and self._queues_are_whole()
        term = self._log.term if leads else None
        if term == self._term:
            return
        if self._term is not None:
            refusal = not_leader(self._broker_name)
            for service in self._services:
                call("ending a term", service.end_term, refusal)
        self._term = term
        if term is not None:
            for service in self._services:
                call("beginning a term", service.begin_term)
        self._announce()

    def begin_ending(self) -> None:
        """Refuse new requests, except reads, as a follower does. Answer appends in flight when
        applied.
        """
        self.is_ending = True
        for service in self._services:
            call("ending", service.ending)

    def have_services_ended(self) -> bool:
        """Return whether no service waits for clients that it sends elsewhere."""
        return all(service.has_ended() for service in self._services)

    def let_go(self) -> None:
        """Stop serving, whether another member leads or not."""
        self._has_let_go = True
        self.follow_role()

    def tick(self) -> None:
        """Let the services do timed work: five times a second."""
        if self._term is not None:
            for service in self._services:
                call("doing what is due", service.tick)

    def look_over(self) -> None:
        """Let the services drop silent clients: every ten seconds."""
        for service in self._services:
            call("looking over clients", service.look_over)


def _failed(command: Command, handler: Handler, error: RequestRefused | Fatal) -> Command | None:
    if isinstance(error, RequestRefused):
        return error.reply_to(command)
    # The log has failed, which ends the member. SYSTEM_ERROR would claim more than is known: to a
    # producer that ends a transaction it means that there is no such transaction.
    words = f"this member ends, ask another one: {error}"
    ending = RequestRefused.not_available(words)
    return _unserved(command, handler, ending)


def _unserved(command: Command, handler: Handler, refusal: RequestRefused) -> Command | None:
    """Return the reply of a member that cannot serve a request; None for clients that
    get no reply.
    """
    if not handler.is_told(command):
        return None
    return refusal.reply_to(command)
