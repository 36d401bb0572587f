"""Puts together the status of a node and of its peers as it sees them."""

from __future__ import annotations

import trio

from dledger.config import NodeConfig
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.member_state import Role
from dledger.network.channel import Channel
from dledger.network.links import Links
from dledger.node.member import Member
from dledger.node.member_alarms import certificate_alarms, hold_text
from dledger.node.member_identity import MemberIdentity
from dledger.serving.host_parts import HostParts
from dledger.snapshots.snapshot_transfer import LACKS_SNAPSHOT
from dledger.status import InstallStatus, PeerStatus, Status, group_status, role_name

REFUSES_SNAPSHOT = "does not take the snapshot that it needs: its own log says why"


def peer_status(
    link: Channel,
    dispatcher: EntryDispatcher | None,
    now: float,
    machine_version: int | None = None,
) -> PeerStatus:
    """Return the status of the member behind `link` at `now`.

    Without a dispatcher (on a follower) only the connection is known. `machine_version`: the
    version that the member told.
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


def node_status(
    config: NodeConfig,
    member: Member,
    links: Links,
    identity: MemberIdentity,
    host: HostParts,
    held: tuple[int, int],
    *,
    ready: bool,
) -> Status:
    """Return the status of the node at this moment, in plain values.

    `held`: the entries and bytes that wait; see AppendGate.
    """
    replica, store, tally, watch = member.replica, member.store, member.tally, host.loop_watch
    state, transfer, scrub = replica.state, replica.handover.transfer, member.housekeeper.scrub
    hold = replica.hold(trio.current_time())
    now = replica.patience.at(trio.current_time())
    contact_at = replica.elector.last_leader_contact  # by the patient clock, as in `peers`
    leads = state.role is Role.LEADER
    space = host.platform.disk_space(config.data_dir)
    stopped = member.applier.stopped
    tls = host.connections.tls
    ends_at = None if tls is None else tls.ends_at
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
        pending_entries=held[0],
        pending_bytes=held[1],
        refused_callers=host.connections.refusals.count,
        loop_holds=0 if watch is None else watch.holds,
        loop_held_s=0.0 if watch is None else watch.held_s,
        newest_snapshot=member.snapshots.newest,
        installing=member.snapshots.installing,
        scrubbed_through=scrub.checked_through,
        scrub_passes=scrub.passes,
        scrub_damage=scrub.damage,
        transfer_target=transfer.target if transfer is not None else None,
        peers={
            peer: peer_status(
                link, replica.dispatchers.get(peer), now, identity.machine_version(peer)
            )
            for peer, link in links.members.items()
        },
        members=group_status(replica),
        generation=identity.guard.generation.number,
        birth=identity.guard.birth,
        leader_contact_s=None if leads or contact_at < 0 else now - contact_at,
        syncs=sum(tally.sync_classes),
        sync_s=tally.sync_s,
        log_bytes=store.end_pos - store.begin_pos,
        disk_free_bytes=space.free,
        synced=store.synced_index,
        disk_total_bytes=space.total,
        machine_version=identity.oldest_machine_version(state.membership.members),
        not_begun=None if hold is None else hold_text(config.group, config.node_id, hold),
        machine_stopped=None if stopped is None else str(stopped),
        disk_short=member.room.why_short,
        alarms=[
            *identity.alarms(replica.handler.orphans),
            *certificate_alarms(config.node_id, ends_at, host.platform.wall_clock_ms() / 1000),
        ],
        certificate_ends_at=ends_at,
    )
