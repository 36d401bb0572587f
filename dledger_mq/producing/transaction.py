"""RocketMQ's transactions: messages that are delivered only if the work they belong to is done.

A half message is stored first and not delivered. Then the program does its own work, such as a
transaction of a database, and commits the message or rolls it back. If that request is lost, or the
program dies before it, the broker asks a producer of the group how the work has ended.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol, TypeAlias

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.calls import call_master
from dledger_mq.connection.client import Client
from dledger_mq.errors import MessagingError, RequestRefused, TransactionRefused
from dledger_mq.listener import SLOW_CALL_S
from dledger_mq.listener_watch import ListenerWatch
from dledger_mq.message import TransactionState
from dledger_mq.received_message import ReceivedMessage, received
from dledger_mq.send_result import SendResult
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.message.message_id import parse_message_id
from remoting.message.record import decode_record
from remoting.net.connection import Connection
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# Answers of a broker that knows that the transaction cannot end this way any more: it has ended the
# other way, its topic was deleted, or the request is malformed.
_REFUSALS: Final = frozenset(
    {
        ResponseCode.ILLEGAL_OPERATION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    }
)

# SYSTEM_ERROR is a refusal only with these remarks: the broker has no such transaction, or it is
# another group's. RocketMQ's brokers use the same code when storing the message failed, and all
# brokers do for an internal error.
_REFUSING_REMARKS: Final = (
    "find prepared transaction message failed",
    "the producer group wrong",
    "the transaction state table offset wrong",
    "the commit log offset wrong",
)

# Checks that run at the same time. Brokers repeat further questions later.
MAX_CHECKS: Final = 64

# Returns the state of the transaction of a half message. An error means UNKNOWN.
TransactionCheck: TypeAlias = Callable[[ReceivedMessage], Awaitable[TransactionState]]


class Transaction:
    """A half message that a broker has stored. Made by `Producer.transaction`.

    Attributes:
        result: the result of its send.
        state: how this producer has ended it; UNKNOWN before.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        result: SendResult,
        on_end: Callable[[TransactionState], None],
    ) -> None:
        self.result = result
        self._on_end = on_end
        self.state = TransactionState.UNKNOWN
        self._is_left_open = False
        self._client = client
        self._group = group

    @property
    def id(self) -> str:
        """The message's id, which is the check's `message_id`: keep it with the work."""
        return self.result.message_id

    @property
    def is_undecided(self) -> bool:
        """Whether it was neither ended nor left open by this producer."""
        return self.state is TransactionState.UNKNOWN and not self._is_left_open

    async def commit(self) -> bool:
        """Have the message delivered.

        Returns:
            Whether the broker has confirmed it. If not, it asks a producer of the group later.

        Raises:
            TransactionRefused: it cannot be delivered any more.
        """
        return await self._end(TransactionState.COMMIT)

    async def roll_back(self) -> bool:
        """Have the message never delivered.

        Returns:
            Whether the broker has confirmed it. If not, it asks a producer of the group later.

        Raises:
            TransactionRefused: it was delivered before.
        """
        return await self._end(TransactionState.ROLLBACK)

    def leave_open(self) -> None:
        """Do not end it at the end of the block: the broker will ask."""
        self._is_left_open = True

    async def _end(self, state: TransactionState) -> bool:
        self._client.check_open()
        self.state = state
        result = self.result
        command = requests.end_transaction(
            self._group,
            half_offset=result.queue_offset,
            physical_offset=parse_message_id(result.offset_message_id).physical_offset,
            message_id=result.message_id,
            how=state,
        )
        what = state.name.lower().replace("rollback", "roll back") + " a transaction"
        try:
            await call_master(self._client, result.queue, command, what)
        except RequestRefused as refused:
            if _is_certain(refused):
                raise TransactionRefused(result.queue.topic, self.id, refused.remark) from refused
            return self._unconfirmed(refused)
        except (MessagingError, RemotingError) as error:
            return self._unconfirmed(error)
        self._on_end(state)
        return True

    def _unconfirmed(self, error: Exception) -> bool:
        _log.info(
            "how transaction %s ends was not confirmed (%s): the broker will ask", self.id, error
        )
        return False


def _is_certain(refused: RequestRefused) -> bool:
    """Return whether the broker knows that the transaction cannot end this way."""
    if refused.code == ResponseCode.SYSTEM_ERROR:
        return refused.remark.lower().startswith(_REFUSING_REMARKS)
    return refused.code in _REFUSALS


class _Decidable(Protocol):
    @property
    def is_undecided(self) -> bool: ...

    async def commit(self) -> bool: ...

    async def roll_back(self) -> bool: ...


@asynccontextmanager
async def decided(transaction: _Decidable) -> AsyncIterator[None]:
    """Commit a transaction at the end of the block, or roll it back at an error.

    A block that has done either, or is cancelled, leaves it as it is.
    """
    try:
        yield
    except Exception:
        if transaction.is_undecided:
            with suppress(TransactionRefused):
                await transaction.roll_back()
        raise
    if transaction.is_undecided:
        await transaction.commit()


class TransactionChecks:
    """Runs a producer's check for each question of a broker.

    `sign` signs a request; `on_answer` is called with the half message and the state that was
    answered.
    """

    def __init__(
        self,
        group: str,
        check: TransactionCheck,
        nursery: StartsTasks,
        watch: ListenerWatch,
        sign: Callable[[Command], None],
        on_answer: Callable[[ReceivedMessage, TransactionState], None],
    ) -> None:
        self._group = group
        self._check = check
        self._nursery = nursery
        self._watch = watch
        self._sign = sign
        self._on_answer = on_answer
        self._under_way = 0
        self._ended = trio.lowlevel.ParkingLot()
        self._is_ending = False

    async def finish(self, timeout_s: float) -> None:
        """Begin no more checks, and wait for those that run. Brokers ask again."""
        self._is_ending = True
        with trio.move_on_after(timeout_s):
            while self._under_way:
                await self._ended.park()

    def asked(self, connection: Connection, command: Command) -> None:
        """Answer a broker's question in the background."""
        if self._is_ending:
            return
        if self._under_way >= MAX_CHECKS:
            _log.info("%d transactions are looked into: the broker will ask again", MAX_CHECKS)
            return
        self._under_way += 1
        self._nursery.start_soon(self._answer, connection, command)

    async def _answer(self, connection: Connection, command: Command) -> None:
        try:
            message = _half_message(command)
            state = await self._state(message)
            if state is not TransactionState.UNKNOWN and not connection.is_closed:
                # If this is lost, the broker asks again.
                answer = requests.end_transaction(
                    self._group,
                    half_offset=command.integer("tranStateTableOffset"),
                    physical_offset=command.integer("commitLogOffset"),
                    message_id=command.fields.get("msgId", ""),
                    how=state,
                    is_answer=True,
                )
                self._sign(answer)
                connection.send_oneway(answer)
                self._on_answer(message, state)
        except (MessageMalformed, RemotingError) as error:
            _log.warning("a broker's question about a transaction cannot be read: %s", error)
        except Exception:
            _log.exception("a transaction's check failed: the broker will ask again")
        finally:
            self._under_way -= 1
            self._ended.unpark_all()

    async def _state(self, message: ReceivedMessage) -> TransactionState:
        state: object = await self._watch.call(
            self._check, message, self._group, SLOW_CALL_S, trio.current_time()
        )
        if not isinstance(state, TransactionState):
            raise TypeError(f"it returned {state!r:.80}, and not a TransactionState")
        return state


def _half_message(command: Command) -> ReceivedMessage:
    """Raises MessageMalformed."""
    record, _end = decode_record(command.body)
    broker_name = command.fields.get("bname", "")
    return received(record, MessageQueue(record.topic, broker_name, record.queue_id))
