"""What a member says of a snapshot that it receives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from dledger.core.messages import InstallSnapshot
from dledger.snapshots.snapshot_transfer import SnapshotTransfer
from dledger.store.incoming_snapshot import Received, SnapshotUnwanted


def test_a_snapshot_that_is_refused_in_its_middle_is_received_no_more() -> None:
    taken: list[object] = [Received(10, None), SnapshotUnwanted("no room"), Received(10, None)]

    def take(*_piece: object) -> object:
        outcome = taken.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    transfer = SnapshotTransfer(
        cast(Any, None),
        cast(Any, SimpleNamespace(take=take)),
        cast(Any, None),
        cast(Any, None),
        lambda: None,
        lambda _snapshot: None,
        lambda work: work()(),
    )
    offer: Any = SimpleNamespace(index=5, size=100, identity=(5, 1, 1))
    pieces = [InstallSnapshot(1, offer, at, 10) for at in (0, 10, 0)]
    seen: list[bool] = []
    for piece in pieces:
        receiver = SimpleNamespace(
            take_pieces=lambda piece=piece: [piece],
            refused=lambda _message: None,
            received=lambda _message, _stored: None,
        )
        transfer.turn(cast(Any, SimpleNamespace(receiver=receiver)), sync_runs=False)
        seen.append(transfer.installing is not None)
    assert seen == [True, False, True]
