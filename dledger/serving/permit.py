"""Decides what the caller of a connection may do."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from dledger.errors import NotPermitted, ProofNeeded
from dledger.network.conversation import Conversation
from dledger.wire.client_protocol import ADMINISTERING, Operation
from dledger.wire.handshake import Caller, Hello, Refused, encode_refused
from dledger.wire.proof import MEMBER, NONCE_BYTES, Shown, decode_proof
from dledger.wire.rights import NEEDED, Authority

logger = logging.getLogger(__name__)

_ASKED = {
    Caller.CLIENT: (
        "users are asked for here: give credentials, or a certificate that names a user"
    ),
    Caller.PEER: (
        "members prove themselves here: give this one the same secret of members, by its file of "
        "users or of access control"
    ),
}
_WRONG = {
    Caller.CLIENT: (
        "this user is unknown, or its secret is wrong: give the credentials of a user of this group"
    ),
    Caller.PEER: "its secret of members is another one: give all members the same",
}

# Returns whether one of these names of a certificate is that of a member.
NamesMember = Callable[[frozenset[str]], bool]

# The secret that the proof of an unknown user is checked against, so that it takes the same time.
_SECRET_OF_UNKNOWN = os.urandom(NONCE_BYTES)


def _no_member(_names: frozenset[str]) -> bool:
    return False


class Permit:
    """What one connection may do. The authority is asked each time: no answer is kept.

    Args:
        authority: says what users may do; None: every caller may do everything.
        node_id: of the member that is called; "" for a peer, which may call several.
        shown: what the caller has proven by a secret; None: nothing.
        names: those in its certificate; None without TLS.
        host: its IP address; "" if it is unknown.
        names_member: asked for a certificate.
    """

    __slots__ = ("_authority", "_host", "_names", "_names_member", "_node_id", "_shown")

    def __init__(
        self,
        authority: Authority | None,
        *,
        node_id: str = "",
        shown: Shown | None = None,
        names: frozenset[str] | None = None,
        host: str = "",
        names_member: NamesMember = _no_member,
    ) -> None:
        self._node_id = node_id
        self._authority = authority
        self._shown = shown
        self._names = names
        self._host = host
        self._names_member = names_member

    @property
    def is_proven(self) -> bool:
        """Whether the caller is a user or a member now, by its certificate or its secret."""
        authority = self._authority
        return authority is None or not authority.asks or self._caller(authority) is not None

    @property
    def is_member(self) -> bool:
        """Whether a peer may send messages of members: asked again for each read."""
        authority = self._authority
        if authority is None or not authority.asks:
            return True
        if (secrets := authority.member_secrets) or self._names is None:
            return self._shown is not None and self._proves_member(self._shown, secrets)
        return True  # `names_a_user` and the names of channels say more

    @property
    def names_a_user(self) -> bool:
        """Whether the certificate is that of a user, and proves no more than that."""
        authority = self._authority
        if authority is None or not authority.asks or self._shown is not None:
            return False
        return any(map(authority.knows, self._names or ()))

    def check(self, operation: Operation) -> None:
        """Raise NotPermitted or ProofNeeded, unless the caller may ask for this now."""
        authority = self._authority
        if authority is None or not authority.asks:
            return
        user = self._caller(authority)
        if user is None:
            raise ProofNeeded(self._node_id)
        if user != MEMBER:
            needed = NEEDED[operation]
            for right in needed:
                if authority.allows(user, right, self._host):
                    break
            else:
                raise NotPermitted(user, operation.value, " or ".join(sorted(needed)))
        if operation in ADMINISTERING:
            who = f"user {user}" if user else "a member"
            logger.info(
                "%s at %s asks for %s",
                *(who, self._host or "an unknown address", operation.value),
                extra={"event": "administered"},
            )

    def _caller(self, authority: Authority) -> str | None:
        """Return the user, or MEMBER; None if the caller is neither now."""
        if (shown := self._shown) is not None:
            if shown.name == MEMBER:
                return MEMBER if self._proves_member(shown, authority.member_secrets) else None
            return shown.name if authority.secret_of(shown.name) == shown.secret else None
        if not self._names:
            return None
        if self._names_member(self._names):
            return MEMBER
        return next(filter(authority.knows, sorted(self._names)), None)

    @staticmethod
    def _proves_member(shown: Shown, secrets: tuple[bytes, ...]) -> bool:
        return shown.name == MEMBER and shown.secret in secrets


# For connections whose callers prove nothing.
EVERYTHING = Permit(None)


async def prove(hello: Hello, conversation: Conversation, authority: Authority) -> Shown:
    """Have a caller prove who it is; return what it has proven.

    Raises Refused, in the same words and time for an unknown name and a wrong secret, and
    MessageMalformed. The caller of this function sets the timeout.
    """
    challenge = os.urandom(NONCE_BYTES)
    asked = _ASKED[hello.caller]
    await conversation.stream.send_all(encode_refused(asked, True, (), challenge))
    frame = await conversation.next_frame()
    if frame is None:
        raise Refused("it did not prove who it is", lasting=True, challenge=b"")
    proof = decode_proof(frame)
    secrets: tuple[bytes, ...] = ()
    if proof.name == MEMBER:
        secrets = authority.member_secrets
    elif hello.caller is Caller.CLIENT:
        secret = authority.secret_of(proof.name)
        secrets = () if secret is None else (secret,)
    proven = None
    for one in secrets or (_SECRET_OF_UNKNOWN,):
        if proof.holds(hello, one, challenge) and secrets:
            proven = one
    if proven is None:
        raise Refused(_WRONG[hello.caller], lasting=True, challenge=b"")
    return Shown(proof.name, proven)
