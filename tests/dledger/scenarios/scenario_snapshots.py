"""How the members of a scenario get snapshots: pieces without bytes, and what they tell."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import InstallSnapshot
from dledger.core.replica import Replica
from dledger.network.ways import Way
from tests.dledger.scenarios.scenario_member import ScenarioMember

Identity = tuple[int, int, int]


class ScenarioSnapshots:
    """Keeps what came of snapshots; installs one that is whole, while no sync runs.

    `saved` says what each snapshot tells of the group.
    """

    def __init__(
        self, member: ScenarioMember, saved: Mapping[Identity, NumberedConfiguration]
    ) -> None:
        self._member = member
        self._saved = saved

    def send(self, link: Way, peer: str, message: InstallSnapshot) -> None:
        link.send(message)

    def turn(self, replica: Replica, *, sync_runs: bool) -> None:
        member = self._member
        pieces = replica.receiver.take_pieces()
        for piece in pieces:
            identity = piece.offer.identity
            received = member.parts.get(identity, 0)
            if piece.offset <= received:
                received = max(received, piece.offset + piece.length)
            member.parts[identity] = received
            if received < piece.offer.size:
                replica.receiver.received(piece, received)
            else:
                member.arrived = piece
        if member.arrived is None or member.syncs:
            return
        piece, member.arrived = member.arrived, None
        member.shelf.offers.append(piece.offer)
        if replica.receiver.install(piece, self._saved[piece.offer.identity]):
            member.to_restore = piece.offer
