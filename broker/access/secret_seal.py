"""Seals users' secrets, so that neither the log nor its snapshots and dumps hold them readable.

A signature is checked with the secret itself, so a hash of it would not do. It is encrypted by
AES-256-GCM with a key that all members of the group have in a file of their own, and that is never
in the log. The user's name is authenticated with it: a secret that was moved to another user in the
log does not open.
"""

import base64
import binascii
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from broker.errors import BrokerError

NONCE_BYTES: Final = 12
_FORM: Final = b"\x01"


class SealBroken(BrokerError):
    """The secret of a user does not open with this member's key."""

    user: str
    _template = (
        "the secret of user {user} does not open: give all members of the group the same seal_key "
        "in their file of access control"
    )


class SecretSeal:
    """Seals secrets by one key of SEAL_KEY_BYTES, see `remoting.wire.users`."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def sealed(self, user: str, secret: str, nonce: bytes) -> str:
        """Seal a secret. `nonce`: NONCE_BYTES that are never used again with this key."""
        box = self._cipher.encrypt(nonce, secret.encode(), _bound_to(user))
        return base64.b64encode(_FORM + nonce + box).decode()

    def opened(self, user: str, sealed: str) -> bytes:
        """Return the secret. Raises SealBroken."""
        try:
            box = base64.b64decode(sealed, validate=True)
            nonce, sealed_secret = box[1 : 1 + NONCE_BYTES], box[1 + NONCE_BYTES :]
            if box[:1] != _FORM:
                raise SealBroken(user)
            return self._cipher.decrypt(nonce, sealed_secret, _bound_to(user))
        except (InvalidTag, ValueError, binascii.Error):
            raise SealBroken(user) from None


def _bound_to(user: str) -> bytes:
    return b"dledger user " + user.encode()
