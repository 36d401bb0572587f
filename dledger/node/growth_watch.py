"""Notes outside of a member's folder that its group has grown beyond its first voters."""

from __future__ import annotations

import logging

import trio

from dledger.core.membership.change_errors import GrowthNotNoted
from dledger.core.membership.configuration import Configuration
from dledger.core.replica import Replica
from dledger.store.growth_note import GrowthNote
from dledger.waits.blocking_work import RunBlocking

logger = logging.getLogger(__name__)


class GrowthWatch:
    """Writes one member's note when its group has grown, and before it grows from this member.

    Args:
        note: the note.
        replica: the member's protocol.
        run_blocking: writes beside the event loop.
    """

    def __init__(self, note: GrowthNote, replica: Replica, run_blocking: RunBlocking) -> None:
        self._note = note
        self._replica = replica
        self._run_blocking = run_blocking
        self._seen = (-2, replica.admission.told)  # no configuration has index -2
        self._grown = trio.Event()

    def look(self) -> None:
        """Request the note if the group has grown. Call this when the group has
        changed.
        """
        replica = self._replica
        seen = (replica.state.membership.index, replica.admission.told)
        if seen == self._seen:
            return
        self._seen = seen
        if replica.has_grown and not replica.growth_is_noted:
            self._grown.set()

    async def run(self) -> None:
        """Write the note once the group has grown. A failure to write it is only logged."""
        await self._grown.wait()
        try:
            await self._write()
        except GrowthNotNoted as error:
            logger.warning("%s", error)

    async def before_change(self, configuration: Configuration) -> None:
        """Write the note if the group needs it before it goes over to this configuration.

        Raises GrowthNotNoted.
        """
        if self._replica.needs_note(configuration) and not self._replica.growth_is_noted:
            await self._write()

    async def _write(self) -> None:
        for problem in await self._run_blocking(self._note.write):
            logger.warning("the note that the group has grown is in one place only: %s", problem)
        self._replica.growth_is_noted = True
