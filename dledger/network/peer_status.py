"""How a leader sees one other member, in words for people."""

from __future__ import annotations

from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.network.channel import Channel
from dledger.network.peer_problems import LACKS_SNAPSHOT, REFUSES_SNAPSHOT
from dledger.status import InstallStatus, PeerStatus


def peer_status(
    link: Channel,
    dispatcher: EntryDispatcher | None,
    now: float,
    machine_version: int | None = None,
) -> PeerStatus:
    """The status of the member behind `link` at `now`.

    Without a dispatcher (on a follower) only the connection is known. `machine_version`: what the
    member told.
    """
    if dispatcher is None:
        return PeerStatus(
            *(link.connected, None, None, None, None, link.last_problem),
            machine_version=machine_version,
        )
    problem, installing = link.last_problem, None
    if (sender := dispatcher.sender) is not None:
        offer = sender.offer
        installing = InstallStatus(offer.index, sender.received or 0, offer.size)
        if sender.refused:
            problem = REFUSES_SNAPSHOT
    elif dispatcher.lacks_snapshot:
        problem = LACKS_SNAPSHOT
    return PeerStatus(
        connected=link.connected,
        phase=dispatcher.phase.name,
        match_index=dispatcher.match_index,
        next_index=dispatcher.next_index,
        proven=dispatcher.proven,
        problem=problem,
        installing=installing,
        answered_s=max(0.0, now - dispatcher.last_answer_at),
        machine_version=machine_version,
    )
