"""Waits until a member can tell the birth of its group, and writes it into the folder."""

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

# A peer that names the birth as it calls causes no turn.
LOOK_AGAIN_S = 0.2


class BirthWatch:
    """One member's, over as soon as the birth is known.

    Entry 0 names the birth. A member whose log begins later has a snapshot in its place: it takes
    the birth from its leader. A leader that has none takes that of the members who commit with it;
    where none of them knows any, their logs are of earlier versions.

    Args:
        config: of the member.
        opened: its folder.
        replica: its protocol.
        turned: made after every turn.
        named: the births that a peer named as it called; those of all members for None.
        run_blocking: writes beside the event loop.
        born: told the birth when the folder says it.
    """

    def __init__(
        self,
        config: NodeConfig,
        opened: Opened,
        replica: Replica,
        turned: Progress,
        named: Callable[[str | None], set[str]],
        run_blocking: RunBlocking,
        born: Callable[[bytes], None],
    ) -> None:
        self._record = opened.birth
        self._disk = opened.folder.disk
        self._folder = node_folder(str(config.data_dir), config.node_id)
        self._store = opened.store
        self._replica = replica
        self._turned = turned
        self._named = named
        self._run_blocking = run_blocking
        self._born = born

    async def run(self) -> None:
        """Wait for the birth, and record it, unless the node stops before.

        Raises LogCorrupt, DiskFailed.
        """
        if self._record.birth:
            return
        while not (birth := self._found()):
            with trio.move_on_after(LOOK_AGAIN_S):
                try:
                    await self._turned.wait()
                except NodeClosing:
                    return
        await self._run_blocking(self._write, birth)
        self._born(birth)

    def _found(self) -> bytes:
        """The birth, if it can be told now; else nothing."""
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
