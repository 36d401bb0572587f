"""The connections of clients that wait for replies, by client id.

RocketMQ's broker knows only clients that have sent a heartbeat, so a request in the first 30
seconds of a producer gets no reply. Here a request registers the connection, too.
"""

from collections import OrderedDict
from typing import Final

from broker.serving.origin import Origin
from broker.serving.parts import Shared

# The client whose last request is oldest is forgotten first.
MAX_ASKERS: Final = 50_000


class Askers:
    """The clients that have sent requests to this leader."""

    def __init__(self) -> None:
        self._origins: OrderedDict[str, Origin] = OrderedDict()
        self._users: dict[str, str | None] = {}
        self._names: dict[Origin, set[str]] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def asked(self, client_id: str, origin: Origin, user: str | None = None) -> bool:
        """Note that a client has sent a request on this connection, unless another user's client of
        this id is connected, whose replies it would get. Return whether it is noted.

        `user`: of the request, None for a super user or without access control.
        """
        known = self._origins.get(client_id)
        if (
            known is not None
            and known is not origin
            and not known.is_closed
            and user not in (None, self._users[client_id])
        ):
            return False
        self._forget(client_id)
        self._origins[client_id] = origin
        self._users[client_id] = user
        self._names.setdefault(origin, set()).add(client_id)
        if len(self._origins) > MAX_ASKERS:
            self._forget(next(iter(self._origins)))
        return True

    def found(self, client_id: str) -> Origin | None:
        """Return the connection of a client; None if it has not asked here, or has disconnected."""
        return self._origins.get(client_id)

    def drop(self, origin: Origin) -> None:
        for client_id in self._names.pop(origin, ()):
            self._origins.pop(client_id, None)
            self._users.pop(client_id, None)

    def clear(self) -> None:
        self._origins.clear()
        self._users.clear()
        self._names.clear()

    def _forget(self, client_id: str) -> None:
        origin = self._origins.pop(client_id, None)
        self._users.pop(client_id, None)
        if origin is not None:
            names = self._names[origin]
            names.discard(client_id)
            if not names:
                del self._names[origin]


ASKERS: Final = Shared("askers", lambda _parts: Askers())
