"""How much of a broker each user may take, so that one user cannot use up what all others need.

A connection counts for the user that first signed a request on it. A request of a proxy, which is a
super user, counts for the user that it represents. Super users, and all clients without access
control, are not counted.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from broker.errors import RequestRefused
from broker.log.submissions import Then
from broker.serving.counts import Counts
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from remoting.wire.command import Command
from remoting.wire.on_behalf import USER

_HOUR_S: Final = 3600.0

# A user that has one of so many parts of a table gets no more of it while half of it is taken.
_PARTS: Final = 4


class UserShares:
    """What users have taken of this member.

    Attributes:
        held: pulls, pops, also of lite topics, and notifications that wait for a message; one with
            many tags counts as several.
    """

    def __init__(self, parts: Parts) -> None:
        self._settings = parts[SETTINGS]
        self._clock = parts.clock
        # Without access control the user that a request names is not checked, so it does not count.
        self._has_users = parts.config.access is not None
        self._users: dict[Origin, str] = {}
        self._origins: dict[str, set[Origin]] = {}  # the same, by user
        self.held = Counts()
        self._waiting = Counts()
        self._new = Counts()  # topics and groups that users made in this hour
        self._taken: dict[str, Counts] = {}  # places of tables that they took in it
        self._hour_ends = 0.0

    def user_of(self, origin: Origin, command: Command) -> str | None:
        """Return the user that a request counts for: for whom a proxy asks, or its connection's."""
        if not self._has_users:
            return None
        user = command.fields.get(USER)
        return self._users.get(origin) if user is None else user

    def connect(self, origin: Origin, user: str) -> None:
        """Count a connection for the user that signed a request on it. Raises RequestRefused (2):
        the user has too many.
        """
        if origin in self._users or origin.is_closed:
            return
        most = self._settings.now.limits.max_connections_of_user
        if len(self.connections_of(user)) >= most:
            raise _busy(user, f"has {most} connections: close some", "MaxConnections")
        self._users[origin] = user
        self._origins.setdefault(user, set()).add(origin)

    def drop(self, origin: Origin) -> None:
        """Count a connection no longer. It has ended."""
        user = self._users.pop(origin, None)
        if user is not None:
            self._origins[user].discard(origin)
            if not self._origins[user]:
                del self._origins[user]

    def user_at(self, origin: Origin) -> str | None:
        """Return the user for whom a connection counts; None if it counts for none."""
        return self._users.get(origin)

    def connections_of(self, user: str) -> Collection[Origin]:
        return self._origins.get(user, ())

    def may_hold(self, user: str | None) -> bool:
        """Return whether one more request of a user may wait for messages."""
        return self.held.of(user) < self._settings.now.limits.max_held_of_user

    def check_hold(self, user: str | None) -> None:
        """Raise RequestRefused (2) if too many requests of a user wait for messages."""
        if not self.may_hold(user):
            count = self.held.of(user)
            raise _busy(user, f"has {count} pulls that wait: pull again later", "MaxHeldPulls")

    def make(self, user: str | None, count: int = 1) -> None:
        """Count topics or groups that a user makes. Raises RequestRefused (2): too many."""
        if user is None or not count:
            return
        self._look_at_clock()
        most = self._settings.now.limits.max_new_of_user
        if self._new.of(user) + count > most:
            text = f"has made {self._new.of(user)} topics and groups within an hour"
            raise _busy(user, f"{text}: make them more slowly", "MaxNewTopics")
        self._new.add(user, count)

    def may_take(
        self, user: str | None, table: str, most: int, *, is_half_full: bool, count: int = 1
    ) -> bool:
        """Count places that a user takes within this hour in a table of all users, whose places are
        kept for long, and return True; or False if it takes too many.

        Args:
            user: see `user_of`.
            table: names the table.
            most: how many places it has.
            is_half_full: whether half of them are taken.
            count: how many the user takes.
        """
        if user is None:
            return True
        self._look_at_clock()
        taken = self._taken.setdefault(table, Counts())
        if is_half_full and taken.of(user) + count > most // _PARTS:
            return False
        taken.add(user, count)
        return True

    @staticmethod
    def check_held(
        user: str | None, held: Callable[[str], int], table: str, most: int, *, is_half_full: bool
    ) -> None:
        """Check whether a user may have one more place of a table whose places come and go.

        `held`: tells how many a user has.

        Raises RequestRefused (2): it has too many.
        """
        if user is not None and is_half_full and held(user) >= most // _PARTS:
            raise RequestRefused.busy(
                f"[OVERLOAD]user {user} has {held(user)} {table}, and half of {most} are taken: "
                "wait until there are fewer"
            )

    def _look_at_clock(self) -> None:
        now = self._clock()
        if now >= self._hour_ends:
            self._hour_ends, self._new = now + _HOUR_S, Counts()
            self._taken.clear()

    def begin_waiting(self, user: str | None) -> Callable[[], None] | None:
        """Count a request of a user that waits for the log; return what to call once when it is
        answered, or None. Raises RequestRefused (2): too many wait.
        """
        if user is None:
            return None
        if self._waiting.add(user) > self._settings.now.limits.max_waiting_of_user:
            self._waiting.remove(user)
            text = f"[OVERLOAD]user {user} has {self._waiting.of(user)} requests that wait"
            raise RequestRefused.busy(f"{text}: ask more slowly, or raise {_name('MaxWaiting')}")
        return partial(self._waiting.remove, user)

    def counted(self, origin: Origin, command: Command, then: Then) -> Then:
        """Return a callback that counts as a waiting request until it is called. Raises as
        `begin_waiting`.
        """
        end = self.begin_waiting(self.user_of(origin, command))
        if end is None:
            return then

        def ended(refusal: RequestRefused | None) -> None:
            end()
            then(refusal)

        return ended


def _name(setting: str) -> str:
    return f"dledger{setting}OfUser"


def _busy(user: str | None, what: str, setting: str) -> RequestRefused:
    return RequestRefused.busy(f"user {user} {what}, or raise {_name(setting)}")


USER_SHARES: Final = Shared("user shares", UserShares)
