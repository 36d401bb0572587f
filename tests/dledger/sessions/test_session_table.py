"""The replicated table of sessions, and the machine over it, against plain models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dledger.entry import Entry, Magic
from dledger.sessions.session_clock import SessionClock
from dledger.sessions.session_entry import (
    APPEND_BYTES,
    MARK,
    AppendInSession,
    CloseSession,
    KeepSessionAlive,
    OpenSession,
    encode_command,
    encode_expire,
    escaped,
)
from dledger.sessions.session_errors import SessionFormatTooNew, SessionTableInvalid
from dledger.sessions.session_snapshot import decode_table, encode_table
from dledger.sessions.session_table import RESULT_OVERHEAD_BYTES, SessionLimits
from dledger.sessions.with_sessions import (
    MAX_RESULT_BYTES,
    AnswerKind,
    SessionAnswer,
    WithSessions,
    unpack_result,
)
from dledger.state_machine import SnapshottingMachine
from tests.examples import examples

LIMITS = SessionLimits(sessions=4, results=3, result_bytes=10_000)
TTL_MS = 1_000


class Ledger:
    """Keeps every body with its place; the result is how many there are, and the body."""

    def __init__(self) -> None:
        self.applied: list[tuple[int, int, bytes]] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        results: list[object] = []
        for entry in entries:
            self.applied.append((entry.index, entry.body_pos, entry.body))
            results.append([len(self.applied), entry.body])
        return results

    def snapshot(self) -> Iterable[bytes]:
        rows = list(self.applied)
        return (b"%d %d %s\n" % (index, pos, body.hex().encode()) for index, pos, body in rows)

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.applied = []
        for line in b"".join(chunks).splitlines():
            index, pos, body = line.split(b" ")
            self.applied.append((int(index), int(pos), bytes.fromhex(body.decode())))


def log_of(bodies: Iterable[bytes], first: int = 0, pos: int = 0) -> list[Entry]:
    entries = []
    for index, body in enumerate(bodies, first):
        entries.append(Entry(index, 1, pos, Magic.NORMAL, body))
        pos += 48 + len(body)
    return entries


class Group:
    """One member, fed by hand."""

    def __init__(self, limits: SessionLimits = LIMITS) -> None:
        self.limits = limits
        self.ledger = Ledger()
        self.machine = WithSessions(self.ledger, limits)
        self.log: list[Entry] = []

    def put(self, *bodies: bytes) -> list[object]:
        pos = self.log[-1].body_pos + len(self.log[-1].body) if self.log else 0
        entries = log_of(bodies, len(self.log), pos)
        self.log += entries
        return list(self.machine.apply(entries))

    def ask(self, command: object, time_ms: int = 0) -> SessionAnswer:
        (answer,) = self.put(*encode_command(command, time_ms, self.limits))  # type: ignore[arg-type]
        assert isinstance(answer, SessionAnswer)
        return answer

    def open(self, time_ms: int = 0) -> int:
        answer = self.ask(OpenSession(TTL_MS), time_ms)
        assert answer.kind is AnswerKind.OPENED
        return answer.number

    def append(
        self, session: int, sequence: int, body: bytes, answered: int = 0, time_ms: int = 0
    ) -> SessionAnswer:
        return self.ask(AppendInSession(session, sequence, answered, [body]), time_ms)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.ledger.applied]


def table_bytes(machine: WithSessions) -> bytes:
    return b"".join(encode_table(machine.table))


# --- what a session promises ----------------------------------------------------------------------


def test_a_sequence_that_comes_again_is_not_applied_again_and_gives_the_first_result() -> None:
    group = Group()
    session = group.open()
    first = group.append(session, 1, b"one")
    other = group.append(session, 2, b"two")
    again = group.append(session, 1, b"one")
    assert group.bodies == [b"one", b"two"]
    assert (first.kind, again.kind) == (AnswerKind.APPLIED, AnswerKind.REPEATED)
    assert (again.number, again.result) == (first.number, first.result)
    assert other.number == first.number + 1
    assert unpack_result(again.result or b"") == [1, b"one"]


def test_a_sequence_that_comes_twice_in_one_run_is_applied_once() -> None:
    group = Group()
    session = group.open()
    entry = encode_command(AppendInSession(session, 1, 0, [b"one"]), 0, LIMITS)[0]
    first, again = group.put(entry, entry)
    assert group.bodies == [b"one"]
    assert isinstance(first, SessionAnswer)
    assert again == first._replace(kind=AnswerKind.REPEATED)


def test_a_gap_is_refused_and_says_what_is_expected() -> None:
    group = Group()
    session = group.open()
    assert group.append(session, 2, b"two") == SessionAnswer(AnswerKind.GAP, 1)
    assert group.append(session, 1, b"one").kind is AnswerKind.APPLIED
    assert group.append(session, 2, b"two").kind is AnswerKind.APPLIED
    assert group.bodies == [b"one", b"two"]


def test_a_sequence_older_than_the_kept_results_is_known_to_be_applied() -> None:
    group = Group()
    session = group.open()
    for sequence in range(1, 6):
        group.append(session, sequence, b"%d" % sequence)
    assert group.append(session, 2, b"2") == SessionAnswer(AnswerKind.FORGOTTEN)
    assert group.append(session, 3, b"3").kind is AnswerKind.REPEATED
    assert len(group.bodies) == 5


def test_results_the_client_has_are_dropped() -> None:
    group = Group()
    session = group.open()
    group.append(session, 1, b"1")
    group.append(session, 2, b"2", answered=2)
    assert group.append(session, 1, b"1").kind is AnswerKind.FORGOTTEN
    assert group.append(session, 2, b"2").kind is AnswerKind.REPEATED
    # A client that claims the future loses nothing that it does not have.
    group.append(session, 3, b"3", answered=99)
    assert group.append(session, 3, b"3").kind is AnswerKind.REPEATED


def test_it_does_not_matter_how_the_log_is_cut_into_runs() -> None:
    # The second append says that the client has the first one's answer: so it is not kept, also
    # by a member that applies both at once.
    bodies = encode_command(OpenSession(TTL_MS), 0, LIMITS)
    bodies += encode_command(AppendInSession(0, 1, 1, [b"one"]), 0, LIMITS)
    bodies += encode_command(AppendInSession(0, 2, 2, [b"two"]), 0, LIMITS)
    bodies += encode_command(AppendInSession(0, 3, 2, [b"three"]), 0, LIMITS)
    one_by_one, at_once = WithSessions(Ledger(), LIMITS), WithSessions(Ledger(), LIMITS)
    for entry in log_of(bodies):
        one_by_one.apply([entry])
    at_once.apply(log_of(bodies))
    assert table_bytes(one_by_one) == table_bytes(at_once)


def test_kept_results_are_bounded_in_bytes() -> None:
    limits = LIMITS._replace(results=100, result_bytes=4 * (RESULT_OVERHEAD_BYTES + 500))
    group = Group(limits)
    session = group.open()
    for sequence in range(1, 11):
        group.append(session, sequence, bytes(490))
    kinds = [group.append(session, sequence, bytes(490)).kind for sequence in range(1, 11)]
    assert kinds == [AnswerKind.FORGOTTEN] * 6 + [AnswerKind.REPEATED] * 4


def test_a_result_that_is_too_large_or_not_plain_is_applied_and_not_kept() -> None:
    class Odd:
        def apply(self, entries: Sequence[Entry]) -> list[object]:
            return [bytes(MAX_RESULT_BYTES) if e.body == b"large" else object() for e in entries]

    machine = WithSessions(Odd(), LIMITS)
    bodies = encode_command(OpenSession(TTL_MS), 0, LIMITS)
    bodies += encode_command(AppendInSession(0, 1, 0, [b"large", b"odd"]), 0, LIMITS)
    _, large, odd = machine.apply(log_of(bodies))
    assert large == SessionAnswer(AnswerKind.APPLIED, 1, None)
    assert odd == SessionAnswer(AnswerKind.APPLIED, 2, None)
    (again,) = machine.apply(log_of(bodies[1:2], 3))
    assert again == SessionAnswer(AnswerKind.REPEATED, 1, None)


def test_a_session_that_is_not_used_ends_by_an_entry_and_not_before() -> None:
    group = Group()
    session, other = group.open(0), group.open(0)
    assert group.ask(KeepSessionAlive(other), TTL_MS - 1).kind is AnswerKind.USED
    # Its time is over, but no entry has ended it: it goes on.
    assert group.append(session, 1, b"late", time_ms=5 * TTL_MS).kind is AnswerKind.APPLIED
    assert group.put(encode_expire(6 * TTL_MS - 1)) == [SessionAnswer(AnswerKind.EXPIRED, 1)]
    assert group.ask(KeepSessionAlive(other)).kind is AnswerKind.UNKNOWN
    assert group.put(encode_expire(6 * TTL_MS)) == [SessionAnswer(AnswerKind.EXPIRED, 1)]
    assert group.append(session, 2, b"too late").kind is AnswerKind.UNKNOWN
    assert group.bodies == [b"late"]


def test_time_never_goes_back() -> None:
    group = Group()
    group.open(10_000)
    late = group.open(0)
    assert group.put(encode_expire(5_000)) == [SessionAnswer(AnswerKind.EXPIRED, 0)]
    assert group.machine.table.time_ms == 10_000
    assert group.append(late, 1, b"x").kind is AnswerKind.APPLIED


def test_a_full_table_pushes_out_the_least_recently_used_session() -> None:
    group = Group()
    sessions = [group.open() for _ in range(4)]
    group.append(sessions[0], 1, b"used")
    group.open()
    assert group.append(sessions[1], 1, b"lost").kind is AnswerKind.UNKNOWN
    assert group.append(sessions[0], 2, b"kept").kind is AnswerKind.APPLIED
    assert len(group.machine.table) == 4


def test_a_closed_session_is_unknown() -> None:
    group = Group()
    session = group.open()
    assert group.ask(CloseSession(session)).kind is AnswerKind.CLOSED
    assert group.ask(CloseSession(session)).kind is AnswerKind.UNKNOWN
    assert group.append(session, 1, b"x").kind is AnswerKind.UNKNOWN
    assert group.bodies == []


# --- bodies of the application --------------------------------------------------------------------


def test_plain_bodies_are_written_and_applied_as_they_are() -> None:
    bodies = [b"", b"one", MARK[:-1], b"x" + MARK]
    assert escaped(bodies) is bodies
    group = Group()
    assert group.put(*bodies) == [[at, body] for at, body in enumerate(bodies, 1)]


@pytest.mark.parametrize("rest", [b"", b"\x01", b"\x01\x02" + bytes(40), b"\x07\x07"])
def test_a_body_that_looks_like_an_envelope_is_one_of_the_application(rest: bytes) -> None:
    group = Group()
    written = [bytes(body) for body in escaped([b"a", MARK + rest]) if isinstance(body, bytes)]
    assert written[0] == b"a"
    assert group.put(*written) == [[1, b"a"], [2, MARK + rest]]


def test_the_machine_is_told_where_its_body_lies() -> None:
    group = Group()
    session = group.open()
    answer = group.append(session, 1, b"body")
    entry = group.log[-1]
    assert group.ledger.applied == [(answer.number, entry.body_pos + APPEND_BYTES, b"body")]


@pytest.mark.parametrize("tail", [b"", b"\x01", b"\x01\x02short", b"\x01\x63", b"\x01\x05"])
def test_a_broken_envelope_is_answered_and_changes_nothing(tail: bytes) -> None:
    group = Group()
    before = table_bytes(group.machine)
    assert group.put(MARK + tail) == [SessionAnswer(AnswerKind.MALFORMED)]
    assert (table_bytes(group.machine), group.bodies) == (before, [])


def test_limits_beyond_reason_are_a_broken_envelope() -> None:
    group = Group()
    huge = SessionLimits(sessions=2**31, results=1, result_bytes=1)
    (body,) = encode_command(OpenSession(1), 0, huge)
    assert group.put(body) == [SessionAnswer(AnswerKind.MALFORMED)]


def test_an_envelope_of_a_later_version_stops_the_member() -> None:
    with pytest.raises(SessionFormatTooNew, match="install the version"):
        Group().put(MARK + b"\x02\x00")


def test_the_wire_format_is_what_it_was() -> None:
    (opened,) = encode_command(OpenSession(60_000), 5, SessionLimits(1, 2, 3))
    assert opened.hex() == (
        "f5646c73657373f601010000000000000005000000000000ea60000000010000000200000003"
    )
    (_, second) = encode_command(AppendInSession(7, 8, 6, [b"a", b"b"]), 5, LIMITS)
    assert second.hex() == (
        "f5646c73657373f60102000000000000000500000000000000070000000000000009000000000000000662"
    )
    assert encode_expire(5).hex() == "f5646c73657373f601050000000000000005"


# --- snapshots ------------------------------------------------------------------------------------


def test_a_machine_without_snapshots_gets_no_wrapper_with_them() -> None:
    class Bare:
        def apply(self, entries: Sequence[Entry]) -> list[object]:
            return [None for _ in entries]

    assert not isinstance(WithSessions(Bare()), SnapshottingMachine)
    assert not hasattr(WithSessions(Bare()), "snapshot")
    assert isinstance(WithSessions(Ledger()), SnapshottingMachine)


def test_a_snapshot_does_not_see_what_is_applied_after_it_was_taken() -> None:
    group = Group()
    session = group.open()
    group.append(session, 1, b"one")
    assert isinstance(group.machine, SnapshottingMachine)
    taken = group.machine.snapshot()
    group.append(session, 2, b"two")
    group.open()
    other = WithSessions(Ledger(), LIMITS)
    assert isinstance(other, SnapshottingMachine)
    other.restore(iter(taken))
    assert (len(other.table), other.table.expected(session)) == (1, 2)
    assert isinstance(other.machine, Ledger)
    assert len(other.machine.applied) == 1


@given(cut=st.integers(0, 200), flip=st.integers(0, 60))
def test_a_broken_snapshot_is_a_typed_error(cut: int, flip: int) -> None:
    group = Group()
    session = group.open()
    group.append(session, 1, b"one")
    whole = table_bytes(group.machine)
    with pytest.raises(SessionTableInvalid):
        decode_table([whole[: min(cut, len(whole) - 1)]])
    broken = bytearray(whole)
    broken[flip % len(whole)] ^= 0x80
    with suppress(SessionTableInvalid):  # any other error would be one
        decode_table([bytes(broken)])


# --- the clock ------------------------------------------------------------------------------------


def test_the_session_clock_stands_still_while_nobody_leads_and_never_goes_back() -> None:
    clock = SessionClock()
    assert clock.now_ms(100.0, term=1, applied_ms=0) == 0
    assert clock.now_ms(102.5, term=1, applied_ms=0) == 2_500
    # Deposed, and elected again an hour later.
    assert clock.now_ms(3_700.0, term=3, applied_ms=2_500) == 2_500
    assert clock.now_ms(3_701.0, term=3, applied_ms=2_500) == 3_500
    # An entry of the leader between is applied late.
    assert clock.now_ms(3_701.5, term=3, applied_ms=9_000) == 9_000
    assert clock.now_ms(3_702.0, term=3, applied_ms=9_000) == 9_500


# --- against a model ------------------------------------------------------------------------------


class Client:
    """What a client knows: a body for each sequence, and the first answer to it."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.bodies: list[bytes] = []
        self.answers: dict[int, SessionAnswer] = {}
        self.answered = 1  # the client has said that it has the answers of all below


class Sessions(RuleBasedStateMachine):
    """One member against a model, and two more that see the log in other runs or restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group()
        self.clients: list[Client] = []
        self.used: dict[int, int] = {}  # the model: session -> time of its last use, oldest first
        self.time_ms = 0
        self.applied: list[bytes] = []
        self.split = WithSessions(Ledger(), LIMITS)  # applies the log in runs of its own
        self.split_to = 0

    def use(self, session: int, time_ms: int) -> bool:
        self.time_ms = max(self.time_ms, time_ms)
        if session not in self.used:
            return False
        del self.used[session]
        self.used[session] = self.time_ms
        return True

    times = st.integers(0, 3_000)

    @rule(later=times)
    def open(self, later: int) -> None:
        session = self.group.open(self.time_ms + later)
        self.time_ms += later
        while len(self.used) >= LIMITS.sessions:
            del self.used[next(iter(self.used))]
        self.used[session] = self.time_ms
        self.clients.append(Client(session))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), later=st.integers(-500, 500), body=st.binary(max_size=4))
    def append(self, data: st.DataObject, later: int, body: bytes) -> None:
        client = data.draw(st.sampled_from(self.clients))
        highest = len(client.bodies) + 2  # one that is new, and one behind a gap
        sequence = data.draw(st.integers(1, highest))
        known = sequence <= len(client.bodies)
        body = client.bodies[sequence - 1] if known else body
        answered = data.draw(st.integers(0, len(client.answers)))
        time_ms = max(0, self.time_ms + later)
        answer = self.group.append(client.session, sequence, body, answered, time_ms)
        if not self.use(client.session, time_ms):
            assert answer.kind is AnswerKind.UNKNOWN
            return
        if sequence == highest:
            assert answer == SessionAnswer(AnswerKind.GAP, highest - 1)
            return
        client.answered = max(client.answered, min(answered, len(client.bodies) + 1))
        if known:
            dropped = sequence <= len(client.bodies) - LIMITS.results
            if dropped or sequence < client.answered:
                assert answer == SessionAnswer(AnswerKind.FORGOTTEN)
            else:
                first = client.answers[sequence]
                assert answer == first._replace(kind=AnswerKind.REPEATED)
        else:
            self.applied.append(body)
            client.bodies.append(body)
            client.answers[sequence] = answer
            assert answer.kind is AnswerKind.APPLIED
            assert unpack_result(answer.result or b"") == [len(self.applied), body]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), later=times)
    def keep_alive(self, data: st.DataObject, later: int) -> None:
        client = data.draw(st.sampled_from(self.clients))
        answer = self.group.ask(KeepSessionAlive(client.session), self.time_ms + later)
        used = self.use(client.session, self.time_ms + later)
        assert answer.kind is (AnswerKind.USED if used else AnswerKind.UNKNOWN)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        answer = self.group.ask(CloseSession(client.session), self.time_ms)
        closed = self.used.pop(client.session, None) is not None
        assert answer.kind is (AnswerKind.CLOSED if closed else AnswerKind.UNKNOWN)

    @rule(later=times)
    def expire(self, later: int) -> None:
        self.time_ms += later
        ended = [s for s, used in self.used.items() if used + TTL_MS <= self.time_ms]
        for session in ended:
            del self.used[session]
        answer = self.group.put(encode_expire(self.time_ms))
        assert answer == [SessionAnswer(AnswerKind.EXPIRED, len(ended))]

    @rule(body=st.binary(max_size=4))
    def append_plain(self, body: bytes) -> None:
        self.applied.append(body)
        assert self.group.put(body) == [[len(self.applied), body]]

    @rule(sizes=st.lists(st.integers(1, 9), max_size=20))
    def apply_elsewhere_in_other_runs(self, sizes: list[int]) -> None:
        for size in [*sizes, len(self.group.log)]:
            run = self.group.log[self.split_to : self.split_to + size]
            self.split_to += len(run)
            if run:
                self.split.apply(run)
        self.compare(self.split)

    @rule(size=st.integers(1, 40))
    def restart_from_a_snapshot(self, size: int) -> None:
        assert isinstance(self.group.machine, SnapshottingMachine)
        whole = b"".join(self.group.machine.snapshot())
        restored = WithSessions(Ledger(), LIMITS)
        assert isinstance(restored, SnapshottingMachine)
        restored.restore(whole[at : at + size] for at in range(0, len(whole), size))
        self.compare(restored)
        assert isinstance(restored.machine, Ledger)
        self.group.machine, self.group.ledger = restored, restored.machine

    @rule()
    def restart_from_the_log(self) -> None:
        again = WithSessions(Ledger(), LIMITS)
        again.apply(self.group.log)
        self.compare(again)

    def compare(self, other: WithSessions) -> None:
        assert table_bytes(other) == table_bytes(self.group.machine)
        assert isinstance(other.machine, Ledger)
        assert other.machine.applied == self.group.ledger.applied

    @invariant()
    def each_body_was_applied_once_and_in_order(self) -> None:
        assert self.group.bodies == self.applied

    @invariant()
    def the_table_holds_the_sessions_of_the_model(self) -> None:
        assert list(self.group.machine.table) == list(self.used)


Sessions.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestSessions = Sessions.TestCase
