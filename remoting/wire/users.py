"""Names and secrets of users, and what a server is told to switch access control on. Pure."""

from dataclasses import dataclass, field
from typing import Final

from remoting.wire.signature import Credentials

SEAL_KEY_BYTES: Final = 32

# RocketMQ 4 takes secrets of more than six characters. Each check of a signature reads the secret.
MIN_SECRET_CHARACTERS: Final = 7
MAX_SECRET_CHARACTERS: Final = 128
MAX_USER_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class AccessFile:
    """What the file says.

    Attributes:
        admin: the user that may do everything.
        seal_key: seals the secrets of users in the log; not shown by `repr`.
    """

    admin: Credentials
    seal_key: bytes = field(repr=False)


def user_problem(name: str) -> str | None:
    """Return what is wrong with a user's name, or None."""
    if not name or len(name) > MAX_USER_CHARACTERS:
        return f"give 1 to {MAX_USER_CHARACTERS} characters"
    if not name.isascii() or not name.isprintable() or set(name) & set(" :*,"):
        return "give letters, digits and signs of ASCII, without blanks, ':', '*' and ','"
    return None


def secret_problem(secret: str) -> str | None:
    """Return what is wrong with a secret, or None."""
    if not MIN_SECRET_CHARACTERS <= len(secret) <= MAX_SECRET_CHARACTERS:
        return f"give {MIN_SECRET_CHARACTERS} to {MAX_SECRET_CHARACTERS} characters"
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        return "give letters, digits and signs of ASCII, without blanks"
    return None
