"""The clients of a simulated service: they send requests to members and note the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.errors import DLedgerError, Rejected
from dledger.state_machine import StateMachine
from dledger.waits.pending_appends import Outcome
from dledger.waits.pending_reads import ReadOutcome
from jepsen_like.chaos.service import Call
from jepsen_like.checkers.report import Verdict
from jepsen_like.fingerprint import digest, shortened, told
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.service.clients_history import check_of, clients_history
from jepsen_like.simulation.service.journal import Journal
from jepsen_like.simulation.service.request import Request, Told, Unanswered
from jepsen_like.simulation.service.service import Service
from jepsen_like.simulation.service.service_book import ServiceBook
from jepsen_like.simulation.virtual_node import VirtualNode
from jepsen_like.simulation.witness import InvariantViolated
from jepsen_like.users_code import raised_in


class MemberDown(Rejected):
    """The member that was asked does not run, or no member leads."""

    problem: str


class ServiceClients:
    """All requests of a run, in the order in which they began.

    `machine` returns the state machine of a member; `journal` is told of requests.
    """

    def __init__(
        self,
        service: Service,
        loop: EventLoop,
        machine: Callable[[str], StateMachine | None],
        journal: Journal | None,
    ) -> None:
        self.requests: list[Request] = []
        self._service = service
        self._loop = loop
        self._machine = machine
        self._journal = journal
        self._open: dict[int, Request] = {}
        self._gone: set[int] = set()  # clients whose last call has an unknown outcome
        # Calls and answers in one order: the lines of a history.
        self._lines: dict[int, tuple[int, int | None]] = {}
        self._line = 0

    @property
    def open_requests(self) -> Sequence[Request]:
        return list(self._open.values())

    def append(
        self,
        node: VirtualNode | None,
        body: bytes,
        call: Call | None = None,
        client: int = 0,
    ) -> Request:
        """Ask a member to append, once; `call` and `client` as in Request."""
        request = self._begin("append", node, body, call, client)
        if node is None or node.process is None:
            self._failed(request, MemberDown("no member leads, or the member is down"))
            return request

        def done(outcome: Outcome) -> None:
            if request.is_open:
                request.append_ended(outcome, self._loop.now)
                self._ended(request)

        def submit() -> None:
            if node.process is not None:
                node.process.member.turn.submit([body], len(body), done)

        node.call(submit)
        return request

    def waits(self, client: int) -> bool:
        """Return whether a client with one call at a time waits for an answer, maybe in vain."""
        return client in self._gone or any(
            each.call is not None and each.client == client for each in self._open.values()
        )

    def read(
        self,
        node: VirtualNode | None,
        *,
        locally: bool,
        call: Call | None = None,
        client: int = 0,
    ) -> Request:
        """Read on a member: after the group has confirmed the read, or at once if `locally`.

        `call` and `client` as in Request.
        """
        request = self._begin("read", node, b"", call, client)
        process = node.process if node is not None else None
        if node is None or process is None:
            self._failed(request, MemberDown("no member leads, or the member is down"))
        elif locally:
            request.read_ended(self._look(node, request), self._loop.now)
            self._ended(request)
        else:
            node.call(lambda: self._begin_read(node, request))
        return request

    def _begin_read(self, node: VirtualNode, request: Request) -> None:
        assert node.process is not None

        def done(outcome: ReadOutcome) -> None:
            if isinstance(outcome, DLedgerError):
                self._failed(request, outcome)
            elif request.is_open:
                request.read_ended(self._look(node, request), self._loop.now)
                self._ended(request)

        try:
            node.process.member.reads.begin(done)
        except DLedgerError as error:
            self._failed(request, error)

    def _look(self, node: VirtualNode, request: Request) -> object:
        return self._service.answer(self._machine(node.name), request.call)

    def member_ended(self, name: str) -> None:
        """Fail the requests to a member whose process has ended."""
        for request in self.open_requests:
            if request.member == name:
                self._failed(request, Unanswered(f"{name} ended before it answered"))

    def _begin(
        self, what: str, node: VirtualNode | None, body: bytes, call: Call | None, client: int
    ) -> Request:
        name = node.name if node is not None else ""
        request = Request(len(self.requests), what, name, body, self._loop.now, call, client)
        self.requests.append(request)
        self._open[request.number] = request
        self._lines[request.number] = (self._next_line(), None)
        if self._journal is not None:
            said = f"append {shortened(repr(body))}" if what == "append" else what
            if call is not None:
                said = shortened(f"{call.function} {call.value!r} of {call.key!r}")
            self._journal.note("called", "client", said, request.number, name)
        return request

    def _failed(self, request: Request, error: DLedgerError) -> None:
        if request.is_open:
            request.failed(error, self._loop.now)
            self._ended(request)

    def _ended(self, request: Request) -> None:
        self._open.pop(request.number, None)
        if request.call is not None and request.told is Told.UNKNOWN:
            self._gone.add(request.client)
        self._lines[request.number] = (self._lines[request.number][0], self._next_line())
        if self._journal is None:
            return
        said = str(request.told)
        if request.told is Told.DONE:
            answer = request.appended.result if request.appended is not None else request.answer
            at = f"entry {request.appended.index}, " if request.appended is not None else ""
            said = f"{at}{shortened(told(answer))}"
        self._journal.note("answered", request.member, said, request.number, "client")

    def _next_line(self) -> int:
        self._line += 1
        return self._line

    # --- at the end ---------------------------------------------------------------------------

    def check_answers(self, book: ServiceBook) -> None:
        """Check that each append that is done is in the log, with its result."""
        places = {entry.index: at for at, entry in enumerate(book.entries)}
        for request in self.requests:
            if request.appended is None:
                continue
            at = places.get(request.appended.index)
            if at is None or book.entries[at].body != request.body:
                raise InvariantViolated(
                    "acknowledged means for ever",
                    f"{request.body!r} was acknowledged as entry {request.appended.index}, "
                    "which is another one",
                )
            if digest(request.appended.result) != digest(book.results[at]):
                raise InvariantViolated(
                    "clients get the results of the log",
                    f"the client got {shortened(told(request.appended.result))} for entry "
                    f"{request.appended.index}; the log gives {shortened(told(book.results[at]))}",
                )

    def check_history(self) -> Verdict:
        """Check the clients' history by the service's model or checker; return the verdict."""
        history = clients_history(self._service, self.requests, self._lines)
        try:
            report = check_of(self._service)(history)
        except HistoryUnreadable as error:
            raise InvariantViolated("the model takes what clients do", error.problem) from error
        except (Exception, SystemExit) as error:
            how = raised_in(error.__cause__ or error)
            raise InvariantViolated("the model never raises", how) from error
        if report.verdict is Verdict.INVALID:
            how = report.problems[0].how if report.problems else report.summary
            raise InvariantViolated("clients see what the model allows", how)
        return report.verdict
