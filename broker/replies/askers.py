"""Who waits for replies: the connection of each client, by the client's name.

RocketMQ's broker knows only clients that have sent a heartbeat, so a question in the first 30
seconds of a producer gets no answer. Here a question itself tells the connection, too.
"""

from collections import OrderedDict
from typing import Final

from broker.serving.origin import Origin
from broker.serving.parts import Shared

# Clients that have asked something; the one that has asked nothing for longest is forgotten first.
MAX_ASKERS: Final = 50_000


class Askers:
    """The clients that have asked something at this leader."""

    def __init__(self) -> None:
        self._origins: OrderedDict[str, Origin] = OrderedDict()
        self._names: dict[Origin, set[str]] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def asked(self, client_id: str, origin: Origin) -> None:
        """A client asks by this connection."""
        self._forget(client_id)
        self._origins[client_id] = origin
        self._names.setdefault(origin, set()).add(client_id)
        if len(self._origins) > MAX_ASKERS:
            self._forget(next(iter(self._origins)))

    def found(self, client_id: str) -> Origin | None:
        """The connection of a client; None: it has not asked here, or is gone."""
        return self._origins.get(client_id)

    def drop(self, origin: Origin) -> None:
        for client_id in self._names.pop(origin, ()):
            self._origins.pop(client_id, None)

    def clear(self) -> None:
        self._origins.clear()
        self._names.clear()

    def _forget(self, client_id: str) -> None:
        origin = self._origins.pop(client_id, None)
        if origin is not None:
            names = self._names[origin]
            names.discard(client_id)
            if not names:
                del self._names[origin]


ASKERS: Final = Shared("askers", lambda _parts: Askers())
