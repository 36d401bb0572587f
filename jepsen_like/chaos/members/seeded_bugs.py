"""Mistakes of applications, made on purpose: a run must find each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from dledger.entry import Entry
from dledger.errors import DLedgerError
from dledger.sessions.session import Session
from jepsen_like.chaos.members.answering import Answering, CorrectAnswering
from jepsen_like.chaos.outcomes import Outcome, ok, outcome_of
from jepsen_like.chaos.service import Call
from jepsen_like.history.operation import EventType
from jepsen_like.history.value import Value

CACHED_MAX = 10_000
SYNCS_AGAIN_MAX = 3


class StaleRead:
    """Reads answer from this member's state at once, without the log's read."""

    def __init__(self, correct: CorrectAnswering) -> None:
        self._correct = correct
        self.append = correct.append

    async def read(self, call: Call) -> Outcome:
        """See Answering."""
        return ok(self._correct.service.query(self._correct.machine, call))


class EarlyAcknowledgement:
    """The leader acknowledges a write before append returns."""

    def __init__(self, correct: CorrectAnswering) -> None:
        self._correct = correct
        self.read = correct.read

    async def append(self, call: Call, session: Session | None) -> Outcome:
        """See Answering."""
        if session is not None:
            return await self._correct.append(call, session)
        try:
            self._correct.node.submit([call.entry], _nothing)
        except DLedgerError as error:
            return outcome_of(error)
        return ok(None)


class LeaderCache:
    """The leader keeps what reads returned, until an entry is about the same key.

    It forgets to drop all of it when it loses leadership, and then no entry drops anything.
    """

    def __init__(self, correct: CorrectAnswering) -> None:
        self._correct = correct
        self.append = correct.append
        self._cache: dict[tuple[str, Value, object], Outcome] = {}
        self._apply = correct.machine.apply
        correct.machine.apply = self._applied

    def _applied(self, entries: Sequence[Entry]) -> Sequence[object]:
        if self._correct.node.is_ready_leader:
            keys = {_key_of(entry.body) for entry in entries}
            self._cache = {
                name: outcome
                for name, outcome in self._cache.items()
                if name[1] is not None and name[1] not in keys
            }
        results: Sequence[object] = self._apply(entries)
        return results

    async def read(self, call: Call) -> Outcome:
        """See Answering."""
        name = (call.function, call.key, call.value)
        found = self._cache.get(name)
        if found is not None:
            return found
        outcome = await self._correct.read(call)
        is_leader = self._correct.node.is_ready_leader
        if outcome.type is EventType.OK and is_leader and len(self._cache) < CACHED_MAX:
            self._cache[name] = outcome
        return outcome


class UnsyncedDisk:
    """Files are not synced, as on a disk that keeps writes in a cache without a battery."""

    def __init__(self, correct: CorrectAnswering) -> None:
        self.append, self.read = correct.append, correct.read
        for call in ("fdatasync", "fsync"):
            setattr(os, call, _nothing)


class SyncAgain:
    """A sync that failed is made again, and believed when the system has nothing more to say."""

    def __init__(self, correct: CorrectAnswering) -> None:
        self.append, self.read = correct.append, correct.read
        for call in ("fdatasync", "fsync"):
            setattr(os, call, partial(_synced_again, getattr(os, call)))


def _synced_again(sync: Callable[[int], None], descriptor: int) -> None:
    for _ in range(SYNCS_AGAIN_MAX):
        with suppress(OSError):
            return sync(descriptor)
    return sync(descriptor)


def _key_of(body: bytes) -> object:
    """The key of a command as the workloads of the harness write it."""
    try:
        return json.loads(body)[1]
    except (ValueError, LookupError, TypeError):
        return None


def _nothing(_: object) -> None:
    """Do nothing: whatever becomes of the entry, or the file."""


class ServiceBug(NamedTuple):
    """A mistake: what it is, how a member makes it, and what shows it, unless most faults do."""

    what: str
    make: Callable[[CorrectAnswering], Answering]
    shown_by: str | None = None


EARLY_ACK = "early-ack"
BUGS: dict[str, ServiceBug] = {
    "stale-read": ServiceBug("reads answer from the own state, without the log", StaleRead),
    EARLY_ACK: ServiceBug("a write is acknowledged before append returns", EarlyAcknowledgement),
    "leader-cache": ServiceBug("a cache of the leader outlives its leadership", LeaderCache),
    "no-sync": ServiceBug("files are not synced (needs --nemesis power)", UnsyncedDisk, "power"),
    "sync-again": ServiceBug(
        "a sync that fails is made again, and believed (needs --nemesis fsync-fails)",
        SyncAgain,
        "fsync-fails",
    ),
}
