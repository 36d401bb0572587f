"""The lines of `dledger status` about snapshot transfers, one for each member behind."""

from __future__ import annotations

from collections.abc import Mapping


def snapshot_notes(statuses: Mapping[str, Mapping[str, object]]) -> list[str]:
    """List the members that receive a snapshot, with their progress, or need a missing one.

    Args:
        statuses: the status of each member, as in `Status.as_dict`.
    """
    notes = []
    for node_id, status in statuses.items():
        peers = status.get("peers")
        if status.get("role") != "leader" or not isinstance(peers, Mapping):
            continue
        for peer, seen in peers.items():
            if not isinstance(seen, Mapping):
                continue
            installing = seen.get("installing")
            if isinstance(installing, Mapping):
                received, total = installing["bytes_received"], installing["bytes_total"]
                notes.append(
                    f"{node_id} sends {peer} the snapshot of entry {installing['index']}: "
                    f"{received} of {total} bytes"
                )
            if seen.get("connected") and seen.get("problem"):
                notes.append(f"{peer} {seen['problem']}")
    return notes
