"""Compares the answers to clients with sessions with what the group applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from zlib import crc32

from dledger.entry import Entry, Magic
from dledger.sessions.with_sessions import SessionAnswer, WithSessions
from dledger.state_machine import SnapshottingMachine
from jepsen_like.simulation.invariants import InvariantViolated

# The body of an append in a session begins with this; those of other appends begin with zeros.
_MARK = b"token"
_NUMBER_BYTES = 8
# A member puts its state through a snapshot after about so many entries.
_ENTRIES_A_SNAPSHOT = 37
# Bytes of a snapshot's chunk: an odd size, so that chunks end inside of records.
_CHUNK_BYTES = 61


def token_body(token: int) -> bytes:
    """Return the body that identifies an append in a session."""
    return _MARK + token.to_bytes(_NUMBER_BYTES, "big")


class TokenMachine:
    """Counts tokens; the result of a token is the number of tokens so far."""

    __slots__ = ("tokens",)

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}  # token -> its entry

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        """Apply entries in log order. Raises InvariantViolated if a token comes twice."""
        results: list[object] = []
        for entry in entries:
            if entry.body.startswith(_MARK):
                token = int.from_bytes(entry.body[len(_MARK) :], "big")
                before = self.tokens.setdefault(token, entry.index)
                if before != entry.index:
                    raise InvariantViolated(
                        "applied once",
                        f"token {token} is applied at {entry.index}, and was at {before}",
                    )
                results.append(len(self.tokens))
            else:
                results.append(None)
        return results

    def snapshot(self) -> list[bytes]:
        return [b"%d %d\n" % (token, index) for token, index in self.tokens.items()]

    def restore(self, chunks: Iterable[bytes]) -> None:
        lines = b"".join(chunks).splitlines()
        self.tokens = {int(token): int(index) for token, index in (row.split() for row in lines)}


class SessionFold:
    """The sessions of one member: the product's wrapper over a machine that counts tokens."""

    __slots__ = ("_since_snapshot", "machine")

    def __init__(self) -> None:
        self.machine = WithSessions(TokenMachine())
        self._since_snapshot = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        """Apply a run of the log, no-ops included; return one answer each."""
        normal = [entry for entry in entries if entry.magic == Magic.NORMAL]
        answers = iter(self.machine.apply(normal))
        results = [next(answers) if e.magic == Magic.NORMAL else None for e in entries]
        self._since_snapshot += len(entries)
        if self._since_snapshot >= _ENTRIES_A_SNAPSHOT:
            self._since_snapshot = 0
            self.restore(self.state())
        return results

    def restore(self, state: bytes) -> None:
        """Replace the state by one that `state` returned, here or on another member."""
        self.machine = WithSessions(TokenMachine())
        assert isinstance(self.machine, SnapshottingMachine)
        self.machine.restore(
            state[at : at + _CHUNK_BYTES] for at in range(0, len(state), _CHUNK_BYTES)
        )

    def state(self) -> bytes:
        """Return table and tokens in a canonical form."""
        assert isinstance(self.machine, SnapshottingMachine)
        return b"".join(self.machine.snapshot())

    @property
    def tokens(self) -> Mapping[int, int]:
        """Each applied token, and its entry."""
        inner = self.machine.machine
        assert isinstance(inner, TokenMachine)
        return inner.tokens


class _Told(Enum):
    NOTHING = "unknown"
    ANSWERED = "applied"
    NEVER = "certainly not applied"


class SessionHistory:
    def __init__(self) -> None:
        self._told: list[_Told] = []
        self._answers: dict[int, tuple[int, bytes | None]] = {}
        self._sums: dict[int, int] = {}  # by entry: the members' answer

    def begin(self) -> int:
        """Begin an append; return its token."""
        self._told.append(_Told.NOTHING)
        return len(self._told) - 1

    def is_answered(self, token: int) -> bool:
        return self._told[token] is _Told.ANSWERED

    def answer(self, token: int, index: int, result: bytes | None) -> None:
        """Note the answer that an append is applied; it may come more than once."""
        first = self._answers.setdefault(token, (index, result))
        if self._told[token] is _Told.NEVER:
            raise InvariantViolated("refused means never", f"token {token} was refused, then not")
        if first != (index, result):
            raise InvariantViolated(
                "one result",
                f"token {token} was answered {first}, then {(index, result)}",
            )
        self._told[token] = _Told.ANSWERED

    def refuse(self, token: int) -> None:
        """Note the answer that an append is not applied and never will be."""
        self._told[token] = _Told.NEVER

    def applied(self, name: str, entries: Sequence[Entry], results: Sequence[object]) -> None:
        """Check that all members answer these entries alike."""
        for entry, result in zip(entries, results, strict=True):
            if isinstance(result, SessionAnswer):
                found = crc32(repr(result).encode())
                if self._sums.setdefault(entry.index, found) != found:
                    raise InvariantViolated(
                        "members answer alike", f"{name} answers entry {entry.index} with {result}"
                    )

    def check(self, folds: Sequence[SessionFold], log: Sequence[Entry]) -> None:
        """Check that members, a replay of the log and the answers to clients agree."""
        again = WithSessions(TokenMachine())
        again.apply([entry for entry in log if entry.magic == Magic.NORMAL])
        assert isinstance(again, SnapshottingMachine)
        state = b"".join(again.snapshot())
        if any(fold.state() != state for fold in folds):
            raise InvariantViolated("members agree about sessions", "their tables differ")
        tokens = folds[0].tokens
        for token, told in enumerate(self._told):
            if told is _Told.NEVER and token in tokens:
                raise InvariantViolated(
                    "refused means never", f"token {token} was refused and is applied"
                )
            if told is _Told.ANSWERED and tokens.get(token) != self._answers[token][0]:
                raise InvariantViolated(
                    "answered means applied", f"token {token} is not at {self._answers[token][0]}"
                )
