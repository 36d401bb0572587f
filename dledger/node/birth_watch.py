"""Waits until a member knows the birth of its group, and records it in the folder."""

from __future__ import annotations

from collections.abc import Callable

import trio

from dledger.config import NodeConfig
from dledger.core.member_state import Role
from dledger.core.replica import Replica
from dledger.errors import DiskFailed, NodeClosing
from dledger.snapshots.restoring import Opened
from dledger.store.birth_file import BirthFile
from dledger.store.folder import node_folder
from dledger.store.folder_birth import committed_birth
from dledger.store.noop_body import BEFORE_BIRTHS
from dledger.waits.blocking_work import RunBlocking
from dledger.waits.progress import Progress

# The birth is looked for at this interval, too: a peer that names it when it connects changes
# nothing else.
LOOK_AGAIN_S = 0.2


class BirthWatch:
    """Finds the birth of one member's group.

    Entry 0 names the birth. A member whose log begins later takes the birth from its leader. A
    leader without entry 0 takes it from the members that commit with it; if none of them knows it,
    their logs were written by earlier versions.

    Args:
        config: of the member.
        opened: its folder.
        replica: its protocol.
        moved: made when the role or the group has changed, or entries were applied.
        named: returns the births that a peer, or with None any member, named when it connected.
        run_blocking: writes beside the event loop.
        born: called with the birth once it is recorded in the folder.
    """

    def __init__(
        self,
        config: NodeConfig,
        opened: Opened,
        replica: Replica,
        moved: Progress,
        named: Callable[[str | None], set[str]],
        run_blocking: RunBlocking,
        born: Callable[[bytes], None],
    ) -> None:
        self._record = opened.birth
        self._disk = opened.folder.disk
        self._folder = node_folder(str(config.data_dir), config.node_id)
        self._store = opened.store
        self._replica = replica
        self._moved = moved
        self._named = named
        self._run_blocking = run_blocking
        self._born = born

    async def run(self) -> None:
        """Wait for the birth and record it; return early if the node stops.

        Raises LogCorrupt, DiskFailed.
        """
        if self._record.birth:
            return
        while not (birth := self._found()):
            with trio.move_on_after(LOOK_AGAIN_S):
                try:
                    await self._moved.wait()
                except NodeClosing:
                    return
        await self._run_blocking(self._write, birth)
        self._born(birth)

    def _found(self) -> bytes:
        """Return the birth if it is known by now; else empty bytes."""
        committed, state = self._replica.appliable, self._replica.state
        if committed < 0 or self._store.first_index == 0:
            return committed_birth(self._store, committed)
        if state.role is Role.LEADER:
            births = self._named(None) or {BEFORE_BIRTHS.hex()}
            known = self._replica.commits_in_own_term
        else:
            births = set() if state.leader is None else self._named(state.leader)
            known = True
        return bytes.fromhex(births.pop()) if known and len(births) == 1 else b""

    def _write(self, birth: bytes) -> None:
        file = BirthFile(self._disk, self._folder)
        try:
            file.write(self._record._replace(birth=birth))
        except OSError as cause:
            raise DiskFailed("write", file.path, cause) from cause
