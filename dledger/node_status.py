"""Puts together what a node knows about itself and the others."""

from __future__ import annotations

from dledger.config import NodeConfig
from dledger.core.replica import Replica
from dledger.links import Links
from dledger.peer_status import peer_status
from dledger.snapshots import Snapshots
from dledger.status import Status, group_status, role_name
from dledger.store.log_store import LogStore
from dledger.store.scrubber import ScrubStatus


def node_status(
    config: NodeConfig,
    store: LogStore,
    replica: Replica,
    links: Links,
    snapshots: Snapshots,
    scrub: ScrubStatus,
    *,
    ready: bool,
    pending_entries: int,
    pending_bytes: int,
    refused_callers: int,
) -> Status:
    """The node at this moment, in plain values."""
    state, transfer = replica.state, replica.handover.transfer
    return Status(
        group=config.group,
        node_id=config.node_id,
        role=role_name(state),
        ready=ready,
        proven=state.proven,
        term=state.term,
        leader=state.leader,
        first_index=store.first_index,
        last_index=replica.view.last_index,
        durable=state.durable,
        committed=state.committed,
        applied=state.applied,
        pending_entries=pending_entries,
        pending_bytes=pending_bytes,
        refused_callers=refused_callers,
        newest_snapshot=snapshots.newest,
        installing=snapshots.installing,
        scrubbed_through=scrub.checked_through,
        scrub_passes=scrub.passes,
        scrub_damage=scrub.damage,
        transfer_target=transfer.target if transfer is not None else None,
        peers={
            peer: peer_status(link, replica.dispatchers.get(peer))
            for peer, link in links.members.items()
        },
        members=group_status(replica),
    )
