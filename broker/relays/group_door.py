"""Accepts clients at the address of the whole group.

The leader serves them. Every other member relays them to it, and to the next leader when leadership
moves. Then the connections end that the old leader has served itself.

When members share one port of a machine, the leader does not accept clients there. So if it is
frozen, its clients come through members that see it, and relay them to the next leader. A direct
connection to the leader would stay open until the client gives up.
"""

import logging
from typing import Final

import trio

from broker.relays.state import LEADER_PLACE
from broker.serving.member import MEMBER
from broker.serving.parts import Parts, Shared
from remoting.net.address import Address, parse_address
from remoting.net.errors import AddressMalformed
from remoting.net.relay import Relays
from remoting.net.server import listen

_log = logging.getLogger(__name__)

# How long a client waits for a leader: an election takes a second, and rarely two.
LEADER_S: Final = 4.0

# How often a waiting client's task checks for a leader: followers get no event when they apply.
_LOOK_S: Final = 0.02


class GroupDoor:
    """The address of the group, `listen_group`, at one member."""

    def __init__(self, parts: Parts) -> None:
        self._config = parts.config
        self._member = parts[MEMBER]
        self._node = self._member.node
        self._place = parts.state[LEADER_PLACE]
        self._tls = self._member.tls
        to_server = None if self._tls is None else self._proven_leader
        self._relays = Relays(self._turn, to_server)
        self._leader: str | None = None
        self._role_changed = trio.lowlevel.ParkingLot()
        self._taking: trio.CancelScope | None = None
        self._is_ending = False

    @property
    def relays(self) -> int:
        return len(self._relays)

    def end_connections(self) -> None:
        """Close the connections of all clients that are served here: another member leads."""
        for connection in list(self._member.connections()):
            connection.close_when_sent("another member leads now")

    def begin_ending(self) -> None:
        """Accept no more clients, and let relayed ones go: they reconnect through other members."""
        self._is_ending = True
        if self._taking is not None:
            self._taking.cancel()
        self._relays.let_go_all()

    async def run(self) -> None:
        """Accept clients, forever. Raises PortInUse, ListenFailed: clients cannot connect."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_leader)
            if not self._config.shares_port or len(self._config.peers) == 1:
                await self._take(nursery)
            while True:
                async with trio.open_nursery() as taking:
                    taking.start_soon(self._take, nursery)
                    await self._until(leads=True)
                    taking.cancel_scope.cancel()
                await self._until(leads=False)

    async def _take(self, nursery: trio.Nursery) -> None:
        at = self._config.listen_group
        assert at is not None
        if self._is_ending:
            return
        with trio.CancelScope() as self._taking:
            listeners = await listen(at.host, at.port, is_shared=self._config.shares_port)
            await self._member.server().take(listeners, gate=self._pass_on, nursery=nursery)

    async def _until(self, *, leads: bool) -> None:
        while self._node.is_ready_leader != leads:
            await self._role_changed.park()

    async def _follow_leader(self) -> None:
        async for change in self._node.role_changes():
            if change.leader != self._leader:
                self._leader = change.leader
                self._relays.move_all()
            self._role_changed.unpark_all()

    async def _turn(self) -> None:
        await self._member.server().client_work.turn()

    async def _pass_on(self, stream: trio.SocketStream, peer: Address) -> bool:
        """Implements `remoting.net.server.Gate`."""
        if await self._found_leader() is None and self._node.is_ready_leader:
            return False
        secured = await self._member.server().secured(stream, peer)
        if secured is not None:
            await self._relays.relay(stream, peer, self._found_leader_or_self, secured)
        return True

    async def _proven_leader(self, stream: trio.SocketStream) -> trio.abc.Stream:
        """Implements `remoting.net.relay.ToServer`."""
        assert self._tls is not None
        leads = self._node.is_ready_leader
        node_id = self._config.node_id if leads else self._place.node_id
        return await self._tls.dialled(stream, node_id)

    async def _found_leader(self) -> Address | None:
        """Return the address of another leader; None if this member leads, or none does for too
        long.
        """
        with trio.move_on_after(LEADER_S):
            while not self._node.is_ready_leader:
                if (leader := self._leader_address()) is not None:
                    return leader
                await trio.sleep(_LOOK_S)
        return None

    async def _found_leader_or_self(self) -> Address | None:
        """Return the address for a relayed client; this member may have become leader meanwhile."""
        leader = await self._found_leader()
        if leader is None and self._node.is_ready_leader:
            return self._config.address_for_members
        return leader

    def _leader_address(self) -> Address | None:
        """Return the leader's address, if this member knows the leader and the log has
        its address.
        """
        if self._leader is None or self._leader != self._place.node_id:
            return None
        if self._leader == self._config.node_id:
            return None  # not ready to serve yet
        try:
            return parse_address(self._place.address)
        except AddressMalformed:
            return None


GROUP_DOOR: Final = Shared("group door", GroupDoor)
