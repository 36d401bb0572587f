"""How a transaction ends."""

from enum import IntEnum

from remoting.message.record import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK


class TransactionState(IntEnum):
    """How a transaction ends; the numbers are those of the wire."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = TRANSACTION_NONE  # the broker asks again later
