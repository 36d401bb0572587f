"""Keeps members of different generations of a group apart."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.config import NodeConfig
from dledger.network.channel import Identity
from dledger.snapshots.restoring import Opened
from dledger.store.folder import node_folder
from dledger.store.generation_file import GenerationFile
from dledger.wire.generation import Superseded, superseded_reason, superseding_generation

logger = logging.getLogger(__name__)


class GenerationGuard:
    """One member's generation, and what it makes of those of others.

    A member that holds nothing yet takes over the newest generation that it hears of. One that
    holds something of an older generation stops: its group lives without it.

    Args:
        config: of the member.
        opened: its folder.
        adopted: told when the member has taken over another generation: all channels are to be
            opened anew.
        fail: ends the member.
    """

    def __init__(
        self,
        config: NodeConfig,
        opened: Opened,
        adopted: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._group = config.group
        self._node_id = config.node_id
        self._address = config.address
        folder = node_folder(str(config.data_dir), config.node_id)
        self._file = GenerationFile(opened.folder.disk, folder)
        self._store = opened.store
        self._adopted = adopted
        self._fail = fail
        self._told: set[str] = set()  # of older ones that called: each is named once

    @property
    def generation(self) -> int:
        """The one that this member belongs to."""
        return self._file.generation

    @property
    def identity(self) -> Identity:
        """How this member introduces itself."""
        return Identity(self._group, self._node_id, self._address, self.generation)

    def refusal(self, sender: str, generation: int) -> str | None:
        """Why a channel from `sender` of that generation is not opened; None if it may be."""
        own = self.generation
        if generation == own:
            return None
        if generation < own:
            if sender not in self._told:
                self._told.add(sender)
                logger.warning(
                    "refused peer %s: it belongs to generation %d of group %s, this is %d",
                    *(sender, generation, self._group, own),
                )
            return superseded_reason(self._group, own, sender, generation)
        self._hear_of(generation)
        return f"{self._node_id} belonged to generation {own}, not {generation}: ask again"

    def refused(self, peer: str, reason: str) -> None:
        """A channel to `peer` was refused."""
        newer = superseding_generation(reason)
        if newer is not None and newer > self.generation:
            self._hear_of(newer)

    def _hear_of(self, newer: int) -> None:
        """The group lives in a newer generation."""
        own = self.generation
        if self._store.last_index >= 0:
            self._fail(Superseded(self._group, self._node_id, own, newer))
            return
        try:
            self._file.set(newer)
        except OSError as error:
            self._fail(error)
            return
        logger.info("%s joins generation %d of group %s", self._node_id, newer, self._group)
        self._adopted()
