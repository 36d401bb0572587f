"""Says in the log when a member is in doubt and when it is proven, and which of its peers are."""

from __future__ import annotations

import logging

from dledger.core.replica import Replica

logger = logging.getLogger(__name__)


class AdmissionLog:
    """Looks after each turn what has changed. A look costs a few comparisons."""

    def __init__(self, node_id: str, replica: Replica) -> None:
        self._node_id = node_id
        self._replica = replica
        self._lost = False
        self._peers_in_doubt: set[str] = set()

    def after_turn(self) -> None:
        """Say what is new."""
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
                "leader, and with it all that it can ever have promised",
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
