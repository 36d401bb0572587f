"""Answers brokers that ask how transactions have ended (39)."""

import logging
from collections.abc import Callable
from typing import Final

import trio

from dledger_mq.connection import requests
from dledger_mq.listener import SLOW_CALL_SECONDS, check_listener
from dledger_mq.listener_watch import ListenerWatch
from dledger_mq.message import TransactionState
from dledger_mq.producing.transaction import TransactionCheck
from dledger_mq.received_message import ReceivedMessage, received
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.message.record import decode_record
from remoting.net.connection import Connection
from remoting.net.starts_tasks import StartsTasks
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# Questions that are looked into at the same time. A broker asks further ones again.
MAX_CHECKS: Final = 64


class TransactionChecks:
    """Runs a producer's check for each question.

    Args:
        group: the producer group.
        check: the user's.
        nursery: runs it.
        watch: watches it.
        on_answer: told the half message and what is answered, or None.

    Raises:
        InvalidListener: the check is no coroutine function.
    """

    def __init__(
        self,
        group: str,
        check: TransactionCheck,
        nursery: StartsTasks,
        watch: ListenerWatch,
        on_answer: Callable[[ReceivedMessage, TransactionState], None] | None = None,
    ) -> None:
        check_listener(check)
        self._group = group
        self._check = check
        self._nursery = nursery
        self._watch = watch
        self._on_answer = on_answer
        self._under_way = 0
        self._ended = trio.lowlevel.ParkingLot()
        self._is_ending = False

    async def finish(self, timeout_seconds: float) -> None:
        """Begin no more checks, and wait for those under way. A broker asks again."""
        self._is_ending = True
        with trio.move_on_after(timeout_seconds):
            while self._under_way:
                await self._ended.park()

    def asked(self, connection: Connection, command: Command) -> None:
        """A broker asks."""
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
                connection.send_oneway(
                    requests.end_transaction(
                        self._group,
                        half_offset=command.integer("tranStateTableOffset"),
                        physical_offset=command.integer("commitLogOffset"),
                        message_id=command.fields.get("msgId", ""),
                        how=state,
                        is_answer=True,
                    )
                )
                if self._on_answer is not None:
                    self._on_answer(message, state)
        except (MessageMalformed, RemotingError) as error:
            _log.warning("a broker's question about a transaction cannot be read: %s", error)
        except Exception:
            # The check is the user's.
            _log.exception("a transaction's check failed: the broker will ask again")
        finally:
            self._under_way -= 1
            self._ended.unpark_all()

    async def _state(self, message: ReceivedMessage) -> TransactionState:
        state: object = await self._watch.call(
            self._check, message, self._group, SLOW_CALL_SECONDS, trio.current_time()
        )
        if not isinstance(state, TransactionState):
            raise TypeError(f"it returned {state!r:.80}, and not a TransactionState")
        return state


def _half_message(command: Command) -> ReceivedMessage:
    """The message that a broker asks about. Raises MessageMalformed."""
    record, _end = decode_record(command.body)
    broker_name = command.fields.get("bname", "")
    return received(record, MessageQueue(record.topic, broker_name, record.queue_id))
