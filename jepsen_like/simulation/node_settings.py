"""The settings of one simulated member, as its seed draws them."""

from __future__ import annotations

from pathlib import Path

from dledger.config import NodeConfig
from dledger.core.membership.configuration import Configuration
from dledger.core.replica import ReplicaConfig
from dledger.entry import BLANK_BYTES, HEADER_BYTES
from dledger.node.member import MemberSettings
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.store.store_config import StoreConfig
from jepsen_like.simulation.event_loop import NEVER
from jepsen_like.simulation.swarm import Swarm

GROUP = "simulation"
FOLDER = Path("/data")
STATE_FOLDER = "/home/state"
# Folders that may hold notes of a member outside of its data folder.
NOTE_FOLDERS = ("/", STATE_FOLDER)
NUMBER_BYTES = 8  # of the number that the body of every append begins with
# The largest entry of a session: its header and a token.
SESSION_BODY_BYTES = 64
# Pieces of a snapshot are so small that a power cut meets every one of them.
SNAPSHOT_SYNC_BYTES = 512


def replica_config(name: str, began_with: Configuration, swarm: Swarm) -> ReplicaConfig:
    leadership = swarm.leadership
    return ReplicaConfig(
        name,
        began_with,
        swarm.election_timeout_s,
        swarm.heartbeat_interval_s,
        leadership.max_clock_drift,
        leadership.preferred_leader,
        swarm.segment_bytes - HEADER_BYTES - BLANK_BYTES,
        # Nothing is certain before all have answered, and here they do.
        recall_timeouts=0.0 if swarm.restore_every_s == NEVER else float("inf"),
    )


def node_config(name: str, began_with: Configuration, swarm: Swarm) -> NodeConfig:
    return NodeConfig(
        group=GROUP,
        node_id=name,
        peers=dict(began_with.addresses) or {name: f"{name}:1"},
        joining=not began_with.voters,
        data_dir=FOLDER,
        store=StoreConfig(
            segment_bytes=swarm.segment_bytes,
            index_segment_bytes=swarm.index_segment_bytes,
            max_body_bytes=max(swarm.load.largest_body_bytes + NUMBER_BYTES, SESSION_BODY_BYTES),
            spare_segments=swarm.spare_segments,
            checkpoint_bytes=swarm.segment_bytes // 3,  # so that power cuts meet them
        ),
        snapshots=_policy(swarm),
    )


def member_settings(swarm: Swarm) -> MemberSettings:
    return MemberSettings(
        GROUP,
        swarm.batch_bytes,
        swarm.flush_interval_s,
        _policy(swarm),
        swarm.scrub_period_s,
        swarm.snapshots.piece_bytes,
        SNAPSHOT_SYNC_BYTES,
        swarm.apply_at_once,
    )


def _policy(swarm: Swarm) -> SnapshotPolicy:
    style = swarm.snapshots
    return SnapshotPolicy(
        every_entries=style.every_entries,
        kept=style.kept,
        trailing_entries=style.trailing_entries,
    )
