"""What all parts of one member's protocol share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dledger.core.ledger_view import LedgerView
from dledger.core.member_state import MemberState
from dledger.core.outbox import Outbox
from dledger.core.patience import Patience
from dledger.core.promise_record import PromiseRecord
from dledger.core.replica_config import ReplicaConfig


class SharedParts(NamedTuple):
    """The parts of one member that every other part may use.

    Attributes:
        config: the member's settings.
        state: role, term, vote, leader and watermarks.
        view: indexes and terms of the log.
        record: which promises are on disk.
        outbox: all messages leave through it.
        patience: the clock of waits.
        random: a random number from 0 to 1.
    """

    config: ReplicaConfig
    state: MemberState
    view: LedgerView
    record: PromiseRecord
    outbox: Outbox
    patience: Patience
    random: Callable[[], float]
