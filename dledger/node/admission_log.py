"""Logs when a member or one of its peers becomes unproven, and when it is proven again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.core.admission.beginning import Hold
from dledger.core.replica import Replica
from dledger.node.member_alarms import hold_text

logger = logging.getLogger(__name__)

# A group with so few entries is new: a member that lacks them is no reason to warn.
YOUNG_LOG_ENTRIES = 64


class AdmissionLog:
    """Compares the state after each change with what was logged.

    While the group is new, a member without its log is no reason to warn. Members begin one after
    the other, and those that start after the first election are in doubt for a moment.
    """

    def __init__(
        self, group: str, node_id: str, replica: Replica, clock: Callable[[], float]
    ) -> None:
        self._group = group
        self._node_id = node_id
        self._clock = clock
        self._held: Hold | None = None
        self._replica = replica
        self._in_doubt = False
        self._said = False
        self._peers_in_doubt: set[str] = set()

    def look(self) -> None:
        proven = self._replica.state.proven
        if not proven:
            self._look_at_hold(self._replica.hold(self._clock()))
        elif self._held is not None:
            self._held = None  # a later doubt is logged again, even with the same hold
        if not proven and self._replica.admission.lost:
            self._in_doubt = True
            if not self._said and self._is_told():
                self._said = True
                self._say_doubt()
        elif self._in_doubt:
            # The proof may come in the same turn as the first answer about the group's log.
            if proven and self._is_told():
                self._say_proof()
            self._in_doubt = self._said = False
        for peer, dispatcher in self._replica.dispatchers.items():
            if dispatcher.proven is (peer in self._peers_in_doubt):
                self._say_peer(peer, dispatcher.proven)

    def _is_told(self) -> bool:
        admission = self._replica.admission
        return not admission.is_fresh or admission.told_last_index >= 0

    def _look_at_hold(self, hold: Hold | None) -> None:
        if hold == self._held:
            return
        self._held = hold
        if hold is not None:
            text = hold_text(self._group, self._node_id, hold)
            logger.warning("%s", text, extra={"event": "not_begun"})

    def _say_doubt(self) -> None:
        forgotten = self._replica.admission.forgotten
        # An empty folder is no older copy, even if a leader is the first to remind the member.
        if forgotten is not None and forgotten.durable >= 0:
            peer, promised, held, term, durable = forgotten
            logger.warning(
                "the folder of %s is an older copy, or its disk lost what it had synced: %s "
                "remembers term %d and entry %d of it, and it had term %d and entry %d; it neither "
                "votes nor counts until it holds the log of a leader",
                *(self._node_id, peer, promised, held, term, durable),
                extra={"event": "older_folder"},
            )
            return
        logger.log(
            self._level(self._replica.admission.is_fresh),
            "%s is new or lost data: it neither votes nor counts until it holds the log of a "
            "leader, and with it everything that it may have promised",
            self._node_id,
        )

    def _say_proof(self) -> None:
        if self._said:
            logger.info("%s holds the log of a leader: it votes and counts", self._node_id)
        else:
            logger.log(
                self._level(self._replica.admission.is_fresh),
                "%s is new or lost data, and holds the log of a leader: it votes and counts",
                self._node_id,
            )

    def _say_peer(self, peer: str, proven: bool) -> None:
        if proven:
            self._peers_in_doubt.discard(peer)
            logger.info("peer %s holds the log: it counts", peer)
        else:
            self._peers_in_doubt.add(peer)
            logger.log(
                self._level(),
                "peer %s is new or lost data: it does not count until it holds the log",
                peer,
            )

    def _level(self, is_fresh: bool = True) -> int:
        """Return the level at which to log that a member lacks the log."""
        known = max(self._replica.view.last_index, self._replica.admission.told_last_index)
        return logging.INFO if is_fresh and known < YOUNG_LOG_ENTRIES else logging.WARNING
