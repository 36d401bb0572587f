"""Waits until a transfer of leadership has succeeded or certainly failed."""

from __future__ import annotations

from dledger.core.handover import LeaderTransfer
from dledger.core.member_state import Role
from dledger.core.replica import Replica
from dledger.errors import TransferFailed
from dledger.patient_limit import patient_limit
from dledger.waits.progress import Progress

# After the old leader stepped down, the outcome counts as unknown if no member leads for this many
# election timeouts: the target's election takes a round trip, a failed one up to two timeouts.
WAIT_TIMEOUTS = 4.0


async def wait_transferred(replica: Replica, transfer: LeaderTransfer, turned: Progress) -> str:
    """Wait for the new leader, and return it. `turned` is made with every turn.

    Raises TransferFailed, NodeClosing.
    """
    state = replica.state
    term = state.term
    with patient_limit(WAIT_TIMEOUTS * replica.config.election_timeout_s):
        while state.term == term and state.role is Role.LEADER:
            if replica.handover.transfer is not transfer:
                raise TransferFailed(transfer.target, transfer.end or "it was given up")
            await turned.wait()
        while state.leader is None:
            await turned.wait()
        if state.leader == transfer.target:
            return transfer.target
        raise TransferFailed(transfer.target, f"{state.leader} leads now")
    raise TransferFailed(transfer.target, "no member leads yet")
