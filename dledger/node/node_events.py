"""Logs what happens to a node: roles, members, snapshots, and a slow disk."""

from __future__ import annotations

import logging
from bisect import bisect_left

import trio

from dledger.node.node import Node
from dledger.node.tally import SLOW_SYNC_S, SYNC_CLASSES_S

logger = logging.getLogger(__name__)

# How often the node is looked at.
LOOK_S = 1.0

_FIRST_SLOW = bisect_left(SYNC_CLASSES_S, SLOW_SYNC_S) + 1

# Slow syncs are logged together, one line in this time at most.
SLOW_SYNCS_TOLD_S = 10.0

# If entries wait for the disk so long without progress, it is stuck.
STALLED_S = 2.0


class NodeEvents:
    """Looks at one node once a second, and logs what changed.

    Args:
        node: the node.
        progress: takes the lines about roles, which supervisors read as well as people.
    """

    def __init__(self, node: Node, progress: logging.Logger) -> None:
        self._node = node
        self._progress = progress
        self._configuration = node.configuration.index
        self._snapshot = node.status().newest_snapshot
        self._slow = self._slow_syncs()
        self._slow_told_at = float("-inf")
        self._durable = -1
        self._stuck_since: float | None = None
        self._stall_told = False

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_roles)
            while True:
                await trio.sleep(LOOK_S)
                self.look()

    async def _tell_roles(self) -> None:
        name = self._node.config.node_id
        async for change in self._node.role_changes():
            self._progress.info(
                "%s %s of term %d%s",
                *(name, change.role, change.term, ", ready" if change.ready else ""),
                extra={
                    "event": "role",
                    "role": change.role,
                    "term": change.term,
                    "leader": change.leader,
                    "ready": change.ready,
                },
            )

    def look(self) -> None:
        self._look_at_members()
        self._look_at_snapshots()
        self._look_at_syncs()
        self._look_at_disk()

    def _look_at_members(self) -> None:
        found = self._node.configuration
        if found.index != self._configuration:
            self._configuration = found.index
            logger.info(
                "the configuration of the group is that of entry %d: %s",
                *(found.index, found.configuration),
                extra={
                    "event": "members",
                    "index": found.index,
                    "members": dict(found.configuration.addresses),
                },
            )

    def _look_at_snapshots(self) -> None:
        newest = self._node.status().newest_snapshot
        if newest != self._snapshot:
            self._snapshot = newest
            fields = {"event": "snapshot", "index": newest}
            logger.info("there is a snapshot of entry %d", newest, extra=fields)

    def _slow_syncs(self) -> int:
        return sum(self._node.tally.sync_classes[_FIRST_SLOW:])

    def _look_at_syncs(self) -> None:
        slow, now = self._slow_syncs(), trio.current_time()
        if slow > self._slow and now - self._slow_told_at >= SLOW_SYNCS_TOLD_S:
            count, self._slow, self._slow_told_at = slow - self._slow, slow, now
            logger.warning(
                "%d syncs to disk took more than %g s each",
                *(count, SLOW_SYNC_S),
                extra={"event": "slow_sync", "count": count, "seconds": SLOW_SYNC_S},
            )

    def _look_at_disk(self) -> None:
        status, now = self._node.status(), trio.current_time()
        if status.durable >= status.last_index or status.durable != self._durable:
            if self._stall_told:
                logger.info("the disk goes on", extra={"event": "disk_goes_on"})
            self._stuck_since, self._stall_told = None, False
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since >= STALLED_S and not self._stall_told:
            self._stall_told = True
            logger.error(
                "the disk has finished no sync for %.1f s, and entries %d..%d wait for it",
                *(now - self._stuck_since, status.durable + 1, status.last_index),
                extra={"event": "disk_stalled", "index": status.durable + 1},
            )
        self._durable = status.durable
