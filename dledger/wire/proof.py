"""How a caller proves its name at the log's port, if the members ask for names. Pure.

A member that asks answers the introduction with a refusal that has a challenge in it: 32 random
bytes, new for each connection. A caller with a secret answers it on the same connection, and is
then welcomed; to all others, older ones too, it is the refusal that it says:

========================================== ======================================
 frame                                      from
========================================== ======================================
 ["hello", version, caller, ...]            the caller
 ["refused", reason, true, [], challenge]   the called side
 ["proof", name, nonce, sum]                the caller; an empty name is a member
 ["welcome", name]                          the called side
 ["refused", reason, true, [], b""]         the called side, to a wrong proof
========================================== ======================================

The sum is HMAC-SHA256, by the secret of that name, over both roles, the whole introduction, the
name, the challenge and the caller's own nonce, each with its length in front. So a sum counts for
one connection, one kind of caller, one group and one name, and the secret is never sent.

Why not more: the proof says who has opened the connection, as a certificate does. What is said
afterwards is neither signed nor hidden, so an attacker who can change packets takes over a proven
connection; proofs of the called side, or of each request, would not prevent all of that, and
cost every request. Against such attackers there is TLS, with or without this.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger.errors import ConfigInvalid, MessageMalformed
from dledger.wire.frame import Frame, encode_frame
from dledger.wire.handshake import CHALLENGE_BYTES, Hello, Refused

NONCE_BYTES = CHALLENGE_BYTES
_SUM_BYTES = hashlib.sha256().digest_size

# The longest DNS name, as a certificate has it.
MAX_USER_CHARACTERS = 253
# An attacker who has recorded a proof can try secrets against it offline, and finds shorter ones.
# The brokers' own users may have shorter ones, as RocketMQ allows them.
MIN_SECRET_CHARACTERS = 16
MAX_SECRET_CHARACTERS = 128

# The name by which a member proves itself; no user has it.
MEMBER = ""

_LABEL = b"user of a log 1"
_CALLED = b"member"
_PROOF = "proof"


class Shown(NamedTuple):
    """What a caller proves: a name, by the secret that belongs to it."""

    name: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Shown({self.name!r})"


# Returns what to prove now, if the other side asks; None: nothing.
Shows = Callable[[], Shown | None]


def shows_nothing() -> Shown | None:
    return None


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user of a program at the log's port. Raises ConfigInvalid.

    `user`: its name; `secret`: 128 characters of ASCII at most. `repr` does not show it.
    """

    user: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        for setting, problem in (
            ("user", user_problem(self.user)),
            ("secret", secret_problem(self.secret, least=1)),
        ):
            if problem is not None:
                raise ConfigInvalid(f"credentials.{setting}", problem)


def shows_of(credentials: Credentials | None) -> Shows:
    """Return what proves these credentials. Raises ConfigInvalid for another object."""
    if credentials is None:
        return shows_nothing
    if not isinstance(credentials, Credentials):
        problem = f"a {type(credentials).__name__}: give dledger.Credentials(user, secret)"
        raise ConfigInvalid("credentials", problem)
    shown = Shown(credentials.user, credentials.secret.encode())
    return lambda: shown


def user_problem(name: object) -> str | None:
    """Return what is wrong with the name of a user, or None."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_USER_CHARACTERS:
        return f"give a name of 1 to {MAX_USER_CHARACTERS} characters"
    if not name.isascii() or not name.isprintable() or " " in name:
        return "give a name of letters, digits and signs of ASCII, without blanks"
    return None


def secret_problem(secret: object, least: int = MIN_SECRET_CHARACTERS) -> str | None:
    """Return what is wrong with a secret, without showing it, or None."""
    if not isinstance(secret, str) or not least <= len(secret) <= MAX_SECRET_CHARACTERS:
        return f"give a text of {least} to {MAX_SECRET_CHARACTERS} characters"
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        return "give letters, digits and signs of ASCII, without blanks"
    return None


def encode_proof(hello: Hello, shown: Shown, challenge: bytes, nonce: bytes) -> bytes:
    """Encode the answer to a challenge. `nonce`: NONCE_BYTES at random."""
    proven = _sum(hello, shown, challenge, nonce)
    return encode_frame([_PROOF, shown.name, nonce, proven])


class Proof(NamedTuple):
    """A caller's answer to a challenge, not checked yet."""

    name: str
    nonce: bytes
    sum: bytes

    def holds(self, hello: Hello, secret: bytes, challenge: bytes) -> bool:
        """Return whether the caller knows this secret, in a time that does not tell how nearly."""
        expected = _sum(hello, Shown(self.name, secret), challenge, self.nonce)
        return hmac.compare_digest(expected, self.sum)


def decode_proof(frame: Frame) -> Proof:
    """Decode the answer to a challenge. Raises Refused for a frame of another kind: the caller
    cannot prove anything; and MessageMalformed.
    """
    match frame.header:
        case ["proof", str(name), bytes(nonce), bytes(proven)] if (
            len(name) <= MAX_USER_CHARACTERS
            and len(nonce) == NONCE_BYTES
            and len(proven) == _SUM_BYTES
        ):
            return Proof(name, nonce, proven)
        case ["proof", *_]:
            raise MessageMalformed("a proof with wrong fields")
        case _:
            raise Refused("it did not prove who it is", lasting=True, challenge=b"")


def _sum(hello: Hello, shown: Shown, challenge: bytes, nonce: bytes) -> bytes:
    address = "" if hello.address is None else str(hello.address)
    names = (str(hello.caller), hello.group, hello.receiver, address, shown.name)
    parts = (_LABEL, _CALLED, *(name.encode("utf-8", "surrogatepass") for name in names))
    told = b"".join(len(part).to_bytes(4, "big") + part for part in (*parts, challenge, nonce))
    return hmac.digest(shown.secret, told, "sha256")
