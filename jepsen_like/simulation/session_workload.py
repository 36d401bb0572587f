"""Clients with sessions: each sends one batch to the leader, again and again until an answer."""

from __future__ import annotations

from dledger.sessions.session_entry import (
    AppendInSession,
    CloseSession,
    KeepSessionAlive,
    OpenSession,
    SessionCommand,
    encode_command,
    encode_expire,
)
from dledger.sessions.session_table import SessionLimits
from dledger.sessions.with_sessions import AnswerKind, SessionAnswer
from dledger.waits.pending_appends import Outcome
from jepsen_like.chance import Chance
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.node_process import SessionCall, Surroundings
from jepsen_like.simulation.session_history import token_body
from jepsen_like.simulation.virtual_node import VirtualNode, leaders_of

# Share of the seeds that have such clients.
SEEDS_WITH_SESSIONS = 0.4
# How often a leader looks for sessions to end.
EXPIRY_INTERVAL_S = 0.5
# Clients without answers send less and less often, as the product's do: a group whose log grows
# faster than its slowest disk writes it would not catch up in the allowed time.
LONGEST_PAUSE_S = 1.0
# Bodies in one batch at most; longer batches show nothing new.
MOST_BODIES_AT_ONCE = 3


class SessionWorkload:
    """The clients of a run, and the leaders' timer that ends unused sessions."""

    def __init__(self, nodes: list[VirtualNode], around: Surroundings) -> None:
        chance = Chance(around.swarm.seed, "sessions")
        self._nodes = nodes
        self.around = around
        self.chance = chance
        self._over = False
        count = chance.choice((1, 3, 6)) if chance.happens(SEEDS_WITH_SESSIONS) else 0
        self._every_s = chance.choice((0.02, 0.1, 0.4))
        self._lost_answers = chance.choice((0.0, 0.1, 0.5))
        self.ttl_ms = chance.choice((500, 3_000, 60_000))
        self._limits = SessionLimits(
            sessions=chance.choice((2, 4, 100)),
            results=chance.choice((MOST_BODIES_AT_ONCE, 10)),
            result_bytes=32 * 1024,
        )
        self._clients = [_Client(self) for _ in range(count)]

    def start(self) -> None:
        for client in self._clients:
            self._again(client)
        if self._clients:
            self.around.loop.after(EXPIRY_INTERVAL_S, self._expire)

    def stop(self) -> None:
        self._over = True

    def _again(self, client: _Client) -> None:
        mean_s = min(self._every_s * (1 << min(client.unanswered, 10)), LONGEST_PAUSE_S)
        self.around.loop.after(self.chance.wait_s(mean_s), self._step, client)

    def _step(self, client: _Client) -> None:
        if not self._over:
            client.step()
            self._again(client)

    def _expire(self) -> None:
        if self._over:
            return
        for node in leaders_of(self._nodes):
            process = node.process
            if process is not None and process.session_expiry_is_due(self.around.loop.now):
                node.ask(SessionCall(lambda now_ms: [encode_expire(now_ms)], self._expired))
        self.around.loop.after(EXPIRY_INTERVAL_S, self._expire)

    def _expired(self, outcome: Outcome) -> None:
        for answer in _answers(outcome):
            self.around.coverage.count("sessions ended by time", answer.number)

    def send(self, client: _Client, command: SessionCommand) -> None:
        """Make one attempt, at a node that considers itself the leader, or at any."""
        client.unanswered += 1
        nodes = leaders_of(self._nodes) or self._nodes
        node = self.chance.choice(nodes)

        def answered(outcome: Outcome) -> None:
            if not self.chance.happens(self._lost_answers):
                delay_s = self.chance.wait_s(self._every_s)
                self.around.loop.after(delay_s, client.answered, command, outcome)

        call = SessionCall(lambda now_ms: encode_command(command, now_ms, self._limits), answered)
        # Attempts overtake one another, as over several connections.
        self.around.loop.after(self.chance.wait_s(self._every_s), self._arrive, node, call)

    @staticmethod
    def _arrive(node: VirtualNode, call: SessionCall) -> None:
        if node.is_up:
            node.ask(call)


class _Client:
    """Sends a batch again until it is answered, also while an earlier attempt is on its way."""

    def __init__(self, workload: SessionWorkload) -> None:
        self.unanswered = 0  # attempts since the last answer
        self._workload = workload
        self._session: int | None = None
        self._first = 1  # the sequence of the first token
        self._tokens: list[int] = []  # without an answer
        self._attempts = 0
        # Tokens of every sequence of every session: answers to old attempts come late.
        self._sent: dict[tuple[int, int], int] = {}

    def step(self) -> None:
        """Send the next batch, or the last one again."""
        workload, chance = self._workload, self._workload.chance
        if self._session is None:
            workload.send(self, OpenSession(workload.ttl_ms))
            return
        if not self._tokens:
            if chance.happens(0.2):
                workload.send(self, KeepSessionAlive(self._session))
                return
            history = workload.around.history.sessions
            self._tokens = [
                history.begin() for _ in range(1 + chance.randrange(MOST_BODIES_AT_ONCE))
            ]
            for at, token in enumerate(self._tokens):
                self._sent[self._session, self._first + at] = token
        self._attempts += 1
        bodies = [token_body(token) for token in self._tokens]
        workload.send(self, AppendInSession(self._session, self._first, self._first, bodies))

    def answered(self, command: SessionCommand, outcome: Outcome) -> None:
        """Take an answer, maybe to an old attempt."""
        answers = _answers(outcome)
        if not answers:
            return
        self.unanswered = 0
        match command:
            case OpenSession():
                if self._session is None:
                    self._session = answers[0].number
                    self._first = 1
            case AppendInSession():
                self._appended(command, answers)
            case KeepSessionAlive(session) | CloseSession(session):
                if answers[0].kind is AnswerKind.UNKNOWN:
                    self._ended(session, certain=False)

    def _appended(self, command: AppendInSession, answers: list[SessionAnswer]) -> None:
        around = self._workload.around
        history = around.history.sessions
        for at, (kind, number, result) in enumerate(answers):
            sequence = command.sequence + at
            token = self._sent[command.session, sequence]
            match kind:
                case AnswerKind.APPLIED | AnswerKind.REPEATED:
                    history.answer(token, number, result)
                    around.coverage.count(f"session appends {kind.name.lower()}")
                case AnswerKind.FORGOTTEN if history.is_answered(token):
                    around.coverage.count("session appends forgotten")
                case AnswerKind.UNKNOWN:
                    # If this was the only attempt, no token of the batch is applied.
                    certain = command.sequence == self._first and self._attempts == 1
                    self._ended(command.session, certain=certain)
                    return
                case _:
                    raise InvariantViolated(
                        "results are kept until they are answered",
                        f"sequence {sequence} of session {command.session} got {kind.name}",
                    )
        if command.session == self._session and command.sequence == self._first:
            self._first += len(self._tokens)
            self._tokens, self._attempts = [], 0

    def _ended(self, session: int, *, certain: bool) -> None:
        if session != self._session:
            return
        around = self._workload.around
        around.coverage.count("sessions that clients lost")
        if certain:
            for token in self._tokens:
                around.history.sessions.refuse(token)
        self._session = None
        self._tokens, self._attempts = [], 0


def _answers(outcome: Outcome) -> list[SessionAnswer]:
    """Return the answers; none unless the entries were applied."""
    if not isinstance(outcome, list):
        return []
    return [each.result for each in outcome if isinstance(each.result, SessionAnswer)]
