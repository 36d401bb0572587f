"""Makes the header of a snapshot. Pure."""

from __future__ import annotations

from dledger.core.membership.configuration_codec import encode_configuration
from dledger.core.membership.membership import Membership
from dledger.store.log_store import LogStore
from dledger.store.snapshot_format import SnapshotHeader


def snapshot_header(
    store: LogStore, membership: Membership, applied: int, group: str, machine: str
) -> SnapshotHeader:
    """Make the header for the state after the entry `applied`.

    It has no configuration if this member does not know the group's configuration yet.
    """
    entry = store.header_at(applied)
    numbered = membership.at(applied)
    return SnapshotHeader(
        applied,
        entry.term,
        entry.pos,
        entry.size,
        entry.chain_crc,
        group,
        machine,
        encode_configuration(*numbered) if numbered.configuration.voters else b"",
    )
