"""The clients of a simulated service: they send requests to members and note the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.errors import DLedgerError, Rejected
from dledger.state_machine import StateMachine
from dledger.waits.pending_appends import Outcome
from dledger.waits.pending_reads import ReadOutcome
from jepsen_like.checkers.bounds import Bounds
from jepsen_like.checkers.linearizability import Linearizability
from jepsen_like.checkers.models.model import Model
from jepsen_like.checkers.report import Verdict
from jepsen_like.history.history import History
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.service.call import Call, Told, Unanswered
from jepsen_like.simulation.service.fingerprint import digest, shortened, told
from jepsen_like.simulation.service.journal import Journal
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.service.service_book import ServiceBook
from jepsen_like.simulation.virtual_node import VirtualNode
from jepsen_like.simulation.witness import InvariantViolated

# What a search for an order may remember: histories of runs are short.
SEARCH_MEMORY_BYTES = 200_000_000
_OUTCOMES = {Told.DONE: EventType.OK, Told.NEVER: EventType.FAIL}


class MemberDown(Rejected):
    """The member that was asked does not run, or no member leads."""


class ServiceClients:
    """All requests of a run.

    Args:
        service: what is simulated.
        loop: of the run.
        machine: returns the state machine of a member.
        journal: told of requests, if there is one.

    Attributes:
        calls: all requests, in the order in which they began.
    """

    def __init__(
        self,
        service: Service,
        loop: EventLoop,
        machine: Callable[[str], StateMachine | None],
        journal: Journal | None,
    ) -> None:
        self.calls: list[Call] = []
        self._service = service
        self._loop = loop
        self._machine = machine
        self._journal = journal
        self._open: dict[int, Call] = {}
        # Calls and answers in one order: what a history has as its lines.
        self._lines: dict[int, tuple[int, int | None]] = {}
        self._line = 0

    @property
    def open_calls(self) -> Sequence[Call]:
        """The requests without an answer."""
        return list(self._open.values())

    def append(self, node: VirtualNode | None, body: bytes) -> Call:
        """Ask a member to append, once."""
        call = self._begin("append", node, body)
        if node is None or node.process is None:
            self._failed(call, MemberDown("no member leads, or the member is down"))
            return call

        def done(outcome: Outcome) -> None:
            if call.is_open:
                call.append_ended(outcome, self._loop.now)
                self._ended(call)

        def submit() -> None:
            if node.process is not None:
                node.process.member.turn.submit([body], len(body), done)

        node.call(submit)
        return call

    def read(self, node: VirtualNode | None, *, locally: bool) -> Call:
        """Read on a member: after the group has confirmed the read, or what is there now."""
        call = self._begin("read", node, b"")
        process = node.process if node is not None else None
        if node is None or process is None:
            self._failed(call, MemberDown("no member leads, or the member is down"))
        elif locally:
            call.read_ended(self._look(node), self._loop.now)
            self._ended(call)
        else:
            node.call(lambda: self._begin_read(node, call))
        return call

    def _begin_read(self, node: VirtualNode, call: Call) -> None:
        assert node.process is not None

        def done(outcome: ReadOutcome) -> None:
            if isinstance(outcome, DLedgerError):
                self._failed(call, outcome)
            elif call.is_open:
                call.read_ended(self._look(node), self._loop.now)
                self._ended(call)

        try:
            node.process.member.reads.begin(done)
        except DLedgerError as error:
            self._failed(call, error)

    def _look(self, node: VirtualNode) -> object:
        machine = self._machine(node.name)
        query = self._service.query
        return machine if query is None or machine is None else query(machine)

    def member_ended(self, name: str) -> None:
        """The process of a member has ended: nobody answers."""
        for call in self.open_calls:
            if call.member == name:
                self._failed(call, Unanswered(f"{name} ended before it answered"))

    def _begin(self, what: str, node: VirtualNode | None, body: bytes) -> Call:
        name = node.name if node is not None else ""
        call = Call(len(self.calls), what, name, body, self._loop.now)
        self.calls.append(call)
        self._open[call.number] = call
        self._lines[call.number] = (self._next_line(), None)
        if self._journal is not None:
            said = f"append {shortened(repr(body))}" if what == "append" else what
            self._journal.note("called", "client", said, call.number, name)
        return call

    def _failed(self, call: Call, error: DLedgerError) -> None:
        if call.is_open:
            call.failed(error, self._loop.now)
            self._ended(call)

    def _ended(self, call: Call) -> None:
        self._open.pop(call.number, None)
        self._lines[call.number] = (self._lines[call.number][0], self._next_line())
        if self._journal is None:
            return
        said = str(call.told)
        if call.told is Told.DONE:
            answer = call.appended.result if call.appended is not None else call.answer
            at = f"entry {call.appended.index}, " if call.appended is not None else ""
            said = f"{at}{shortened(told(answer))}"
        self._journal.note("answered", call.member, said, call.number, "client")

    def _next_line(self) -> int:
        self._line += 1
        return self._line

    # --- at the end ---------------------------------------------------------------------------

    def check_answers(self, book: ServiceBook) -> None:
        """Check that each append that is done is in the log, with its result."""
        places = {entry.index: at for at, entry in enumerate(book.entries)}
        for call in self.calls:
            if call.appended is None:
                continue
            at = places.get(call.appended.index)
            if at is None or book.entries[at].body != call.body:
                raise InvariantViolated(
                    "acknowledged means for ever",
                    f"{call.body!r} was acknowledged as entry {call.appended.index}, "
                    "which is another one",
                )
            if digest(call.appended.result) != digest(book.results[at]):
                raise InvariantViolated(
                    "clients get the results of the log",
                    f"the client got {shortened(told(call.appended.result))} for entry "
                    f"{call.appended.index}; the log gives {shortened(told(book.results[at]))}",
                )

    def check_model(self, model: Model) -> None:
        """Check that the answers have an order that the model allows."""
        operations = [self._operation(call) for call in self.calls]
        operations.sort(key=lambda operation: operation.invoked_line)
        report = Linearizability(model, Bounds(memory_bytes_max=SEARCH_MEMORY_BYTES)).check(
            History(operations, name="clients")
        )
        if report.verdict is Verdict.INVALID:
            how = report.problems[0].how if report.problems else report.summary
            raise InvariantViolated("clients see one order", how)

    def _operation(self, call: Call) -> Operation:
        invoked, ended = self._lines[call.number]
        value = call.body.decode("utf-8", "backslashreplace") if call.what == "append" else None
        result = call.appended.result if call.appended is not None else call.answer
        unknown = call.told in (Told.NOTHING, Told.UNKNOWN)
        return Operation(
            process=call.number,
            function=call.what,
            key=None,
            value=value,
            invoked_line=invoked,
            invoked_ns=round(call.began_s * 1e9),
            member=call.member or None,
            outcome=EventType.INFO if unknown else _OUTCOMES[call.told],
            result=result if call.told is Told.DONE else None,
            ended_line=None if unknown else ended,
            ended_ns=None if unknown or call.ended_s is None else round(call.ended_s * 1e9),
        )
