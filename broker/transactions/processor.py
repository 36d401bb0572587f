"""Answers producers that end a transaction (37).

Source: RocketMQ's EndTransactionProcessor.
"""

from typing import Final

from broker.errors import EntryPassedOver, RequestRefused
from broker.log.state import BrokerState
from broker.retention.full_disk import FullDisk
from broker.serving.origin import Origin
from broker.transactions.ends import Ends
from broker.transactions.state import TRANSACTIONS, End, Half
from remoting.message.record import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

_ENDS: Final = {TRANSACTION_COMMIT: End.COMMITTED, TRANSACTION_ROLLBACK: End.ROLLED_BACK}


class EndProcessor:
    """Ends transactions.

    Args:
        state, ends: what it works with.
        disk: refuses messages when it is too full.
    """

    def __init__(self, state: BrokerState, ends: Ends, disk: FullDisk) -> None:
        self._transactions = state[TRANSACTIONS]
        self._ends = ends
        self._disk = disk

    def end(self, origin: Origin, command: Command) -> Command | None:
        """Commit a transaction or roll it back, once; what was so before is answered with success.

        A producer that does not know yet is asked later.

        Raises:
            FieldMissing: a field it must have is missing.
            RequestRefused: (1) there is no such transaction, or it is another group's, (2) it is
                being ended, (14) the disk is too full, (29) an end that is none, (604) it has ended
                otherwise; see `Ends.commit`.
        """
        group = command.name("producerGroup")
        position = command.integer("commitLogOffset")
        queue_offset = command.integer("tranStateTableOffset")
        how = command.int32("commitOrRollback")
        if how == TRANSACTION_NONE:
            return command.reply()
        end = _ENDS.get(how)
        if end is None:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"commitOrRollback={how}: give {TRANSACTION_COMMIT}, {TRANSACTION_ROLLBACK} or 0",
            )
        half = self._transactions.halves.get(position)
        if half is None:
            return self._ended(command, position, end)
        self._check(half, group, queue_offset, position)

        def done(refusal: RequestRefused | None) -> None:
            if refusal is None:
                origin.send(command.reply())
                return
            if isinstance(refusal, EntryPassedOver):
                refusal = _no_such(position)
            elif refusal.code == ResponseCode.SYSTEM_ERROR:  # in doubt, and good to be asked again
                refusal = RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, refusal.remark)
            origin.send(command.reply(refusal.code, remark=refusal.remark))

        if end is End.COMMITTED:
            self._disk.check()
            self._ends.commit(position, half, done)
        else:
            self._ends.roll_back(position, done)
        return None

    def _check(self, half: Half, group: str, queue_offset: int, position: int) -> None:
        # These begin with RocketMQ's words, by which a client tells them from other failures.
        if half.group != group:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group wrong: the transaction at {position} is of {half.group:.80}",
            )
        if half.queue_offset != queue_offset:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the transaction state table offset wrong: that of the transaction at {position} "
                f"is {half.queue_offset}",
            )
        if self._ends.is_under_way(position):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"the transaction at {position} is being ended: ask again"
            )

    def _ended(self, command: Command, position: int, end: End) -> Command:
        """The answer for a transaction that is not open."""
        ended = self._transactions.ends.get(position)
        if ended is None:
            raise _no_such(position)
        if ended is not end:
            words = ended.name.lower().replace("_", " ")
            raise RequestRefused(
                ResponseCode.ILLEGAL_OPERATION, f"the transaction at {position} was {words} before"
            )
        return command.reply()


def _no_such(position: int) -> RequestRefused:
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR,
        f"find prepared transaction message failed: none is open at {position}",
    )
