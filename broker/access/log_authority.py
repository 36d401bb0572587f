"""Applies the users and rules of access control to callers at the port of the log."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from broker.access.guard import AccessGuard
from broker.serving.needs import Action, Need
from broker.topics.needs import cluster_need
from dledger import Right
from remoting.wire.signature import Credentials
from remoting.wire.users import AccessFile

# Readers of the log get the messages of all topics; no other request needs `Sub` on the cluster.
_NEEDS: Final[dict[Right, Sequence[Need]]] = {
    Right.READ: (cluster_need(Action.SUB),),
    Right.QUERY: (cluster_need(Action.SUB),),
    Right.WATCH: (cluster_need(Action.SUB),),
    Right.STATUS: (cluster_need(Action.GET),),
    Right.MEMBERS: (cluster_need(Action.UPDATE),),
    Right.LEAD: (cluster_need(Action.UPDATE),),
}
# No rule grants these. An entry that no broker has made may stop the brokers: only members append.
_NEVER_GRANTED: Final = frozenset((Right.APPEND,))
assert _NEEDS.keys() | _NEVER_GRANTED == set(Right), "a right has no rule"

_MEMBERS: Final = b"members of the log"


class LogAuthority:
    """An authority (`dledger.Authority`) for the port of the log.

    The administrator of the file and super users may do everything there but append; others what
    rules for the cluster grant. Members prove themselves by a secret that is made of the seal key,
    which no user has, or by their certificates.

    Args:
        file: of access control.
        speaks_tls: whether certificates prove members.
        asks: whether callers have to prove who they are.

    Attributes:
        asks: see above; may change while the broker runs.
        guard: knows the users; None until the log is read: only the administrator is known then.
    """

    def __init__(self, file: AccessFile, *, speaks_tls: bool, asks: bool) -> None:
        self.asks = asks
        self.guard: AccessGuard | None = None
        self._admin = file.admin
        secret = hmac.digest(file.seal_key, _MEMBERS, hashlib.sha256)
        self._member_secrets = () if speaks_tls else (secret,)

    def change_administrator(self, admin: Credentials) -> None:
        """Let another administrator or another secret count from the next request on."""
        self._admin = admin

    @property
    def member_secrets(self) -> tuple[bytes, ...]:
        """As in `dledger.Authority`."""
        return self._member_secrets

    def knows(self, user: str) -> bool:
        """As in `dledger.Authority`. A disabled user is unknown."""
        return self.secret_of(user) is not None

    def secret_of(self, user: str) -> bytes | None:
        """As in `dledger.Authority`."""
        if user == self._admin.access_key:
            return self._admin.secret_key.encode()
        return None if self.guard is None else self.guard.secret_of(user)

    def allows(self, user: str, right: Right, host: str) -> bool:
        """As in `dledger.Authority`."""
        if right in _NEVER_GRANTED:
            return False
        if user == self._admin.access_key:
            return True
        return self.guard is not None and self.guard.allows(user, host or "0.0.0.0", _NEEDS[right])
