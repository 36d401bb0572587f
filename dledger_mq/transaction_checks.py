"""Answers brokers that ask how transactions have ended (39)."""

import logging
from typing import Final

import trio

from dledger_mq import requests
from dledger_mq.listener import check_listener
from dledger_mq.received_message import received
from dledger_mq.transaction import TransactionCheck, TransactionState
from remoting.bodies.message_queue import MessageQueue
from remoting.message.errors import MessageMalformed
from remoting.message.record import decode_record
from remoting.net.connection import Connection
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

    Raises:
        InvalidListener: the check is no coroutine function.
    """

    def __init__(self, group: str, check: TransactionCheck, nursery: trio.Nursery) -> None:
        check_listener(check)
        self._group = group
        self._check = check
        self._nursery = nursery
        self._under_way = 0

    def asked(self, connection: Connection, command: Command) -> None:
        """A broker asks."""
        if self._under_way >= MAX_CHECKS:
            _log.info("%d transactions are looked into: the broker will ask again", MAX_CHECKS)
            return
        self._under_way += 1
        self._nursery.start_soon(self._answer, connection, command)

    async def _answer(self, connection: Connection, command: Command) -> None:
        try:
            state = await self._state(command)
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
        except (MessageMalformed, RemotingError) as error:
            _log.warning("a broker's question about a transaction cannot be read: %s", error)
        except Exception:
            # The check is the user's.
            _log.exception("a transaction's check failed: the broker will ask again")
        finally:
            self._under_way -= 1

    async def _state(self, command: Command) -> TransactionState:
        record, _end = decode_record(command.body)
        broker_name = command.fields.get("bname", "")
        queue = MessageQueue(record.topic, broker_name, record.queue_id)
        state: object = await self._check(received(record, queue))
        if not isinstance(state, TransactionState):
            raise TypeError(f"it returned {state!r:.80}, and not a TransactionState")
        return state
