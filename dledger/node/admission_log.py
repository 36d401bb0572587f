"""Logs when a member or one of its peers becomes unproven, and when it is proven again."""

from __future__ import annotations

import logging

from dledger.core.replica import Replica

logger = logging.getLogger(__name__)


class AdmissionLog:
    """Compares the state after each turn with what was logged; that takes a few comparisons."""

    def __init__(self, node_id: str, replica: Replica) -> None:
        self._node_id = node_id
        self._replica = replica
        self._lost = False
        self._peers_in_doubt: set[str] = set()

    def after_turn(self) -> None:
        """Log what changed since the last turn."""
        lost = self._replica.admission.lost
        if lost is not self._lost:
            self._lost = lost
            self._say_own(lost)
        for peer, dispatcher in self._replica.dispatchers.items():
            if dispatcher.proven is (peer in self._peers_in_doubt):
                self._say_peer(peer, dispatcher.proven)

    def _say_own(self, lost: bool) -> None:
        if lost:
            logger.warning(
                "%s is new or lost data: it neither votes nor counts until it holds the log of a "
                "leader, and with it everything that it may have promised",
                self._node_id,
            )
        elif self._replica.state.proven:
            logger.info("%s holds the log of a leader: it votes and counts", self._node_id)

    def _say_peer(self, peer: str, proven: bool) -> None:
        if proven:
            self._peers_in_doubt.discard(peer)
            logger.info("peer %s holds the log: it counts", peer)
        else:
            self._peers_in_doubt.add(peer)
            logger.warning(
                "peer %s is new or lost data: it does not count until it holds the log", peer
            )
