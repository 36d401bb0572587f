"""Answers clients that watch a state machine, from the history of its changes or from its state."""

from __future__ import annotations

from typing import Final

import trio

from dledger.changes import Path, Watchable
from dledger.errors import DLedgerError
from dledger.serving.client_turns import client_turns
from dledger.serving.failed_looks import FailedLooks
from dledger.serving.served_queries import ReadableNode
from dledger.sessions.with_sessions import application_of
from dledger.state_machine import StateMachine
from dledger.waits.change_history import ChangeHistory, Selected
from dledger.watch_errors import TooManyWatches, WatchCompacted, WatchesOff, WatchInvalid
from dledger.wire.client_protocol import MAX_WAIT_MS, Request
from dledger.wire.watch_protocol import (
    MAX_CHANGES_BYTES,
    Watch,
    decode_watch,
    encode_changes,
    encode_state,
)

# Limit on waiting watches of one member: each is a task of some kilobytes, and one answer a second.
MAX_WATCHES: Final = 1_000


class ServedWatches:
    def __init__(
        self, node: ReadableNode, machine: StateMachine, history: ChangeHistory | None
    ) -> None:
        self._node = node
        self._application = application_of(machine)
        self._history = history
        self._failed = FailedLooks()
        self._count = 0

    async def answer(self, request: Request) -> bytes:
        """Wait for changes until the request's time is over; return the frame of the answer.

        Raises MessageMalformed, WatchesOff, WatchInvalid, WatchCompacted, WatchTooLarge,
        TooManyWatches, ReadUnavailable, NodeClosing.
        """
        watch, history = decode_watch(request), self._history
        if history is None:
            raise WatchesOff
        if self._count >= MAX_WATCHES:
            raise TooManyWatches(self._count, self._node.config.node_id)
        self._count += 1
        try:
            if watch.after is None:
                await self._node.read()  # so that a watcher sees what it wrote before
                return await client_turns().take(self._state, request.request_id, watch.path)
            return await self._changes(request.request_id, watch, watch.after, history)
        finally:
            self._count -= 1

    async def _changes(
        self, request_id: int, watch: Watch, after: int, history: ChangeHistory
    ) -> bytes:
        until = trio.current_time() + min(watch.wait_ms, MAX_WAIT_MS) / 1000
        with trio.move_on_at(until):
            await self._node.wait_applied(after)
        turns = client_turns()
        while True:
            found = await turns.take(self._look, request_id, watch.path, after, history)
            if isinstance(found, bytes):
                return found
            rows, after, is_all = found
            if rows or history.end < after or trio.current_time() >= until:
                return encode_changes(request_id, rows, after, self._node.role.leader)
            if is_all:
                after = max(after, await _next_change(history, watch.path, until))

    def _look(
        self, request_id: int, path: Path, after: int, history: ChangeHistory
    ) -> Selected | bytes:
        """Return the next changes, or the frame of the state if the changes are not kept any
        more.
        """
        self._node.state_index()  # raises if the state, and so its changes, is not valid
        if after >= history.begin:
            return history.select(after, path, MAX_CHANGES_BYTES)
        if isinstance(self._application, Watchable):
            return self._state(request_id, path)
        raise WatchCompacted(after, history.begin)

    def _state(self, request_id: int, path: Path) -> bytes:
        index, leader = self._node.state_index(), self._node.role.leader
        if not isinstance(self._application, Watchable):
            problem = "the state machine has no method watched(path), so that `after` is needed"
            raise WatchInvalid(problem)
        try:
            return encode_state(request_id, path, index, self._application.watched(path), leader)
        except DLedgerError:
            raise
        except Exception as error:
            raise WatchInvalid(f"watched() raised {self._failed.tell('watched', error)}") from None


async def _next_change(history: ChangeHistory, path: Path, until: float) -> int:
    """Wait for a change of a path; return an entry up to which there is none."""
    task, upto = trio.lowlevel.current_task(), -1

    def give_up(_: object) -> trio.lowlevel.Abort:
        nonlocal upto
        upto = history.end
        history.leave(waiting)
        return trio.lowlevel.Abort.SUCCEEDED

    waiting = history.wait(path, lambda: trio.lowlevel.reschedule(task))
    with trio.move_on_at(until):
        await trio.lowlevel.wait_task_rescheduled(give_up)
        return waiting.upto
    return upto
