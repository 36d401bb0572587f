"""The orderly end of a member: another member leads first, and clients get their answers.

The steps: new requests, except pulls, are refused with the answer that sends clients to the leader;
appends in flight are answered; leadership is handed over; waiting pulls are answered, so that they
ask the next leader; the answers leave. Each step has a time limit, so the member ends whatever the
group and the clients do.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from broker.log.guarded_log import GuardedLog
from broker.serving.requests import Requests
from dledger import DLedgerError, Node, NotLeader
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# An append in flight needs one round of the group, or as long as the log is full.
APPEND_S: Final = 2.0

# A transfer gives up after one election timeout, about a second; there is time for another one.
TRANSFER_S: Final = 2.0

# For answers to leave, and for clients that send without waiting to be refused.
FAREWELL_S: Final = 1.0

# A client that was silent for so long has no requests in flight.
QUIET_S: Final = 0.2

# How often a step checks whether it is done.
LOOK_S: Final = 0.01

# The pause after a failed transfer: the other member may only just have connected.
_AGAIN_S: Final = 0.2


class Ending:
    def __init__(
        self,
        node: Node,
        log: GuardedLog,
        requests: Requests,
        say_farewell: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._log = log
        self._requests = requests
        self._say_farewell = say_farewell

    async def run(self) -> None:
        """Prepare the end, in 5 s at most. Then the member may be cancelled."""
        self._requests.begin_ending()
        await _until(lambda: self._log.submitted == 0, APPEND_S)
        with trio.move_on_after(TRANSFER_S):
            await self._hand_over()
        self._requests.let_go()
        await self._say_farewell()
        await _until(self._are_clients_quiet, FAREWELL_S)

    async def _hand_over(self) -> None:
        """Transfer leadership to another member; return if there is none."""
        voters = self._node.configuration.configuration.voters
        told = ""
        while voters != {self._node.config.node_id}:
            try:
                await self._node.transfer_leadership()
            except NotLeader:
                return
            except DLedgerError as error:
                if told != (told := str(error)):  # each reason once
                    _log.warning("the leader ends, and %s", quoted(error))
                await trio.sleep(_AGAIN_S)
            else:
                return

    def _are_clients_quiet(self) -> bool:
        quiet_since = trio.current_time() - QUIET_S
        return self._requests.have_services_ended() and all(
            not connection.unsent_bytes and connection.last_activity <= quiet_since
            for connection in self._requests.connections
        )


async def _until(is_done: Callable[[], bool], patience_s: float) -> None:
    with trio.move_on_after(patience_s):
        # The callers wait for three different conditions, which have no common event.
        while not is_done():  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
