"""How a member ends that was asked to: another one leads first, and clients have their answers.

In this order: requests that come now are refused with the answer that sends clients to the leader,
but pulls are not; what is on its way into the log is answered; leadership is handed over; the pulls
that wait are answered, and ask the next leader; the answers leave. Each step has its time, so an
end that was asked for comes, whatever the group and the clients do.
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

# What is on its way into the log needs one round of the group, or as long as the log is full.
APPEND_S: Final = 2.0

# A transfer gives up after one election timeout, about a second; there is time for another one.
TRANSFER_S: Final = 2.0

# The answers leave, and clients that send without waiting hear that they have to go elsewhere.
FAREWELL_S: Final = 1.0

# A client that was silent for so long has no more requests under way.
QUIET_S: Final = 0.2

# How often the steps look whether they are done.
LOOK_S: Final = 0.01

# How long to wait after a transfer that failed at once: a member may only just have connected.
_AGAIN_S: Final = 0.2


class Ending:
    """The end of one member.

    Args:
        node: the member.
        log: its log, as requests see it.
        requests: its clients.
        say_farewell: tells the name servers that it ends.
    """

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
        """Let the member go; it may be cancelled then. Takes 5 s at most."""
        self._requests.begin_ending()
        await _until(lambda: self._log.submitted == 0, APPEND_S)
        with trio.move_on_after(TRANSFER_S):
            await self._hand_over()
        self._requests.let_go()
        await self._say_farewell()
        await _until(self._are_clients_quiet, FAREWELL_S)

    async def _hand_over(self) -> None:
        """Have another member lead; give up if there is none."""
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
        # Three things of different kinds are waited for once; no event tells of all.
        while not is_done():  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
