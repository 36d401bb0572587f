"""Carries messages between nodes; loses, delays, repeats and reorders them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Protocol

from dledger.core.messages import Message
from jepsen_like.chance import Chance
from jepsen_like.simulation.event_loop import EventLoop
from jepsen_like.simulation.swarm import NetworkStyle

# How long a broken connection takes to be noticed, and a new one to be made, on the average.
NOTICE_MEAN_S = 0.02
# How long after the first copy of a message its second one comes, on the average.
REPEAT_MEAN_S = 0.05
# Messages that a cut link keeps at most; if there are more, the oldest are lost.
MOST_HELD_MESSAGES = 1_000
# The delays of a network at rest, in seconds.
CALM_LEAST_DELAY_S = 0.000_1
CALM_MEAN_DELAY_S = 0.000_5


class Endpoint(Protocol):
    """A node, as the network uses it."""

    @property
    def is_up(self) -> bool: ...

    def deliver(self, sender: str, message: Message) -> None: ...

    def peer_lost(self, peer: str) -> None: ...

    def peer_found(self, peer: str) -> None: ...

    def peer_gone(self, peer: str) -> None: ...

    @property
    def leader(self) -> str | None: ...


class NetworkWatch(Protocol):
    """Looks at messages; `number` counts those of a run."""

    def sent(self, number: int, sender: str, receiver: str, message: Message) -> None: ...

    def arrived(self, number: int) -> None:
        """Note an arrival; a message that was sent once may arrive twice."""
        ...

    def lost(self, number: int) -> None: ...


class _Link:
    """One direction between two nodes."""

    __slots__ = ("connected", "cut", "generation", "held", "last_arrival")

    def __init__(self) -> None:
        self.held: deque[tuple[Message, int, int]] = deque(maxlen=MOST_HELD_MESSAGES)
        self.cut = False
        self.connected = True
        # The number of the connection: messages sent on an older one never arrive.
        self.generation = 0
        self.last_arrival = 0.0


class VirtualNetwork:
    """All links of a group. In connection mode a link is one TCP connection of its sender."""

    def __init__(self, loop: EventLoop, style: NetworkStyle, chance: Chance) -> None:
        self._loop = loop
        self._chance = chance
        self._links: dict[tuple[str, str], _Link] = {}
        self.style = style
        self.endpoints: dict[str, Endpoint] = {}
        self.watch: NetworkWatch | None = None
        self.sent = self.lost = self.duplicated = 0

    def add(self, node: str, endpoint: Endpoint) -> None:
        for other in self.endpoints:
            self._links[node, other] = _Link()
            self._links[other, node] = _Link()
        self.endpoints[node] = endpoint

    def send(self, sender: str, receiver: str, message: Message) -> None:
        """Send a message; chance decides whether and when it arrives."""
        self.sent += 1
        number = self.sent
        link = self._links[sender, receiver]
        style, chance = self.style, self._chance
        if self.watch is not None:
            self.watch.sent(number, sender, receiver, message)
        if style.connections:
            if not link.connected:
                self._is_lost(number)
                return
        elif style.loss and chance.happens(style.loss):
            self.lost += 1
            self._is_lost(number)
            return
        arrival = self._loop.now + self._delay_s()
        if style.ordered:
            arrival = link.last_arrival = max(link.last_arrival, arrival)
        self._loop.at(arrival, self._arrive, sender, receiver, message, link.generation, number)
        if style.connections:
            return
        if style.duplication and chance.happens(style.duplication):
            self.duplicated += 1
            late_s = self._delay_s() + chance.wait_s(REPEAT_MEAN_S)
            self._loop.after(
                late_s, self._arrive, sender, receiver, message, link.generation, number
            )

    def _is_lost(self, number: int) -> None:
        if self.watch is not None:
            self.watch.lost(number)

    def calm(self) -> None:
        """Make the network quick and orderly: messages arrive once."""
        self.style = replace(
            self.style,
            ordered=True,
            loss=0.0,
            duplication=0.0,
            least_delay_s=CALM_LEAST_DELAY_S,
            mean_delay_s=CALM_MEAN_DELAY_S,
        )

    def _delay_s(self) -> float:
        return self.style.least_delay_s + self._chance.wait_s(self.style.mean_delay_s)

    def _arrive(
        self, sender: str, receiver: str, message: Message, generation: int, number: int
    ) -> None:
        link = self._links[sender, receiver]
        if self.style.connections and generation != link.generation:
            self._is_lost(number)
            return
        if link.cut:
            if self.style.cuts_hold:
                link.held.append((message, generation, number))
            else:
                self._is_lost(number)
            return
        if self.watch is not None:
            self.watch.arrived(number)
        self.endpoints[receiver].deliver(sender, message)

    # --- faults -------------------------------------------------------------------------------

    def cut(self, sender: str, receiver: str) -> None:
        self._links[sender, receiver].cut = True
        self._examine(sender, receiver)

    def heal(self) -> None:
        """Mend all links, and send on the messages that they held."""
        for (sender, receiver), link in self._links.items():
            link.cut = False
            while link.held:
                held = link.held.popleft()
                self._loop.at(self._loop.now, self._arrive, sender, receiver, *held)
        self.examine_all()

    def process_ended(self, node: str) -> None:
        """Break all connections of a node that is gone; messages on them are lost."""
        for other in self.endpoints:
            if other != node and self.style.connections:
                self._break(node, other)
                self._break(other, node)

    def answers(self, sender: str, receiver: str) -> bool:
        """Return whether the links between the two machines work in both directions."""
        return not (self._links[sender, receiver].cut or self._links[receiver, sender].cut)

    def examine_all(self) -> None:
        """Open the connections that are possible after a heal or a restart."""
        for sender, receiver in self._links:
            self._examine(sender, receiver)

    def _examine(self, sender: str, receiver: str) -> None:
        if self.style.connections:
            self._loop.after(self._chance.wait_s(NOTICE_MEAN_S), self._settle, sender, receiver)

    def _break(self, sender: str, receiver: str) -> None:
        link = self._links[sender, receiver]
        if link.connected:
            link.connected = False
            link.generation += 1
            self.endpoints[sender].peer_lost(receiver)

    def _settle(self, sender: str, receiver: str) -> None:
        """Open or break the connection, by the state of the link and of its ends."""
        link = self._links[sender, receiver]
        passable = not link.cut or self.style.cuts_hold
        possible = passable and self.endpoints[sender].is_up and self.endpoints[receiver].is_up
        if link.connected and not possible:
            self._break(sender, receiver)
        elif possible and not link.connected:
            link.connected = True
            link.last_arrival = self._loop.now
            self.endpoints[sender].peer_found(receiver)
