"""Makes a member's settings and replica from the node's settings and its folder."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import trio

from dledger.config import NodeConfig
from dledger.core.admission.beginning import PATIENCE_TIMEOUTS
from dledger.core.entry_dispatcher import BatchSizer
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import MAX_CONFIGURATION_BYTES
from dledger.core.replica import Replica, ReplicaConfig
from dledger.core.snapshot.snapshot_offer import SnapshotSource
from dledger.entry import BLANK_BYTES, HEADER_BYTES
from dledger.network.host_connection import LAST_DIAL_S
from dledger.node.member import MemberSettings
from dledger.node.recovered_membership import recovered_membership
from dledger.snapshots.restoring import Opened

# How long an only first voter with an empty folder waits for calls before it begins its group. In
# twice the longest pause between two calls of a member even a busy one calls once. This is the
# second line of defence, after the note (`dledger.store.growth_note`): if this machine lost that as
# well, members of a group that has grown still call it.
CALLS_WAIT_S = 2 * LAST_DIAL_S


def member_settings(config: NodeConfig) -> MemberSettings:
    flush_ms = config.flush_interval_ms
    return MemberSettings(
        config.group,
        config.max_batch_bytes,
        None if flush_ms is None else flush_ms / 1000,
        config.snapshots,
        config.scrub_period_hours * 3600,
        pass_over=config.pass_over,
        watch_history_bytes=config.watch_history_bytes,
    )


def member_replica(
    config: NodeConfig,
    opened: Opened,
    batches: BatchSizer,
    snapshots: SnapshotSource,
    chance: Callable[[], float],
) -> Replica:
    """Make the replica of a member; `chance` draws from 0 to 1. Raises ConfigurationLost."""
    store = opened.store
    began_with = _began_with(config, opened)
    replica = Replica(
        ReplicaConfig(
            config.node_id,
            began_with,
            config.election_timeout_ms / 1000,
            config.heartbeat_interval_ms / 1000,
            config.max_clock_drift,
            config.preferred_leader,
            min(MAX_CONFIGURATION_BYTES, store.segment_bytes - HEADER_BYTES - BLANK_BYTES),
            aligned_heartbeats=True,
            early_spread=crc32(config.group.encode()),
            # With a flush interval a power cut may shrink a log that is no older copy.
            recall_timeouts=PATIENCE_TIMEOUTS if config.flush_interval_ms is None else 0.0,
            told=opened.told,
            calls_wait_s=CALLS_WAIT_S,
        ),
        store.view(),
        opened.hard_state,
        batches,
        chance,
        trio.current_time(),
        recovered_membership(store, began_with, opened.configuration),
        snapshots,
        store.standing,
        store.orphans,
    )
    if config.joining:
        replica.growth_is_noted = True  # its command never begins a group with an empty folder
    if opened.restored is not None:
        replica.applied_to(opened.restored.header.index)
    if opened.keeps_nothing:
        replica.applied_to(max(replica.state.applied, replica.state.committed))
    return replica


def _began_with(config: NodeConfig, opened: Opened) -> Configuration:
    """Return the first voters. Those in the folder, if it has any, win over the settings."""
    recorded = opened.birth.first_voters
    return config.began_with if recorded is None else recorded
