"""A program that queries the state machine of a group, and watches its changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from dledger.changes import Path
from dledger.client.remote_log import RemoteLog
from dledger.errors import DLedgerError
from dledger.wire.watch_protocol import ValueSet, WatchedState, WatchEvent
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.around import Around
from jepsen_like.simulation.hosts.told_state import OF_WRITERS

# How long one watch is followed before the next one begins.
WATCH_S = 1.0
# How long a query tries: the member that it asks may have left the group.
QUERY_S = 2.0


class StateReader:
    """Reads one group's state machine over a log, until `stopped` returns True.

    `members` are those that the group begins with.
    """

    def __init__(
        self,
        around: Around,
        name: str,
        group: str,
        members: Sequence[str],
        log: RemoteLog,
        stopped: Callable[[], bool],
    ) -> None:
        self._around = around
        self._name = name
        self._book = around.books[group]
        self._members = members
        self._log = log
        self._stopped = stopped
        self._chance = Chance(around.plan.seed, f"reader {name}")

    async def run(self) -> None:
        """Watch one path after the other, with a query in between."""
        while not self._stopped():
            await trio.sleep(self._chance.wait_s(self._around.plan.pause_s))
            await self._try(self._query)
            await self._try(self._watch)

    async def _try(self, use: Callable[[], object]) -> None:
        try:
            await use()  # type: ignore[misc]
        except DLedgerError as error:
            self._around.journal.count(f"errors: {type(error).__name__}")

    # --- queries --------------------------------------------------------------------------------

    async def _query(self) -> None:
        floor = self._book.newest
        stale = self._chance.choice((False, True))
        after = floor if floor >= 0 and (not stale or self._chance.choice((False, True))) else None
        if stale:
            queried = await self._log.query("newest", stale=True, after=after)
        else:
            on = self._chance.choice((None, *self._members))
            queried = await self._log.query("newest", on=on, timeout_s=QUERY_S)
        self._around.journal.count("queries of clients")
        last = self._book.last_told(queried.index)
        if queried.result != (last and [last, self._book.digest(last)]):
            self._wrong("queries see one state", f"{queried}, entry {last} is the last one")
        if queried.index < (floor if after is None and not stale else after or -1):
            self._wrong("queries see what was acknowledged", f"{queried} after entry {floor}")

    # --- watches --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        path: Path = self._chance.choice(((), ("newest",), (OF_WRITERS,), (OF_WRITERS, self._name)))
        newest = self._book.newest
        after = self._chance.choice((None, newest, max(-1, newest - 5), max(-1, newest - 60)))
        asked, floor = after, newest if after is None else after
        with trio.move_on_after(self._chance.uniform(0.1, WATCH_S)):
            entry: list[WatchEvent] = []
            async for event in self._log.watch(*path, after=after):
                if isinstance(event, WatchedState):
                    self._judge_state(path, event, asked, entry)
                    if event.index < floor:
                        self._wrong("a watched state is new", f"{event} after entry {floor}")
                    after = event.index
                    continue
                entry.append(event)
                if not event.more:
                    self._judge(path, after, entry)
                    after, entry = event.index, []

    def _judge_state(
        self, path: Path, state: WatchedState, asked: int | None, entry: list[WatchEvent]
    ) -> None:
        self._around.journal.count("states that clients watched")
        if entry:
            self._wrong("changes of an entry come together", f"{entry}, then {state}")
        if dict(state.values) != self._book.state(path, state.index):
            self._wrong("a watched state is of its entry", f"{path}: {state} after {asked}")

    def _judge(self, path: Path, after: int | None, entry: list[WatchEvent]) -> None:
        self._around.journal.count("changes that clients watched")
        index = entry[0].index
        expected = self._book.next_told(path, -1 if after is None else after)
        got = [(each.path, each.value) for each in entry if isinstance(each, ValueSet)]
        if after is None or index != expected or got != self._book.told(path, index):
            self._wrong(
                "watches see each change once and in order",
                f"{path} after {after}: {entry}, and entry {expected} is the next one",
            )

    def _wrong(self, promise: str, how: str) -> None:
        self._around.broken(promise, f"{self._name}: {how}")
