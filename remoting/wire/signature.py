"""Signs requests, and checks signatures, as RocketMQ's clients of version 4 do.

The signature is the base64 text of HMAC-SHA1, with the user's secret as key, over the values of all
fields in the order of their names, without the signature's own, and then the body. Names are not
signed, and nothing tells one request from its repetition: an attacker who can read or change
packets can send a request again, or move text from one field to the next. Only TLS prevents that.
"""

import hmac
from binascii import b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from remoting.wire.command import Command

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"

# RocketMQ 4's clients up to this version add this field after they have signed.
_LATE_FIELD: Final = "_UNIQUE_KEY_QUERY"
_LATE_UP_TO_VERSION: Final = 399


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and secret.

    Attributes:
        access_key: the user's name.
        secret_key: its secret; not shown by `repr`.
    """

    access_key: str
    secret_key: str = field(repr=False)

    def sign(self, command: Command) -> None:
        """Add both fields to a request."""
        fields = command.fields
        fields[ACCESS_KEY] = self.access_key
        fields[SIGNATURE] = signature(self.secret_key.encode(), fields, command.body)


def signature(secret: bytes, fields: Mapping[str, str], body: bytes) -> str:
    signed = "".join([text for name, text in sorted(fields.items()) if name != SIGNATURE]).encode()
    digest = hmac.digest(secret, signed + body, "sha1")
    return b2a_base64(digest, newline=False).decode()


def is_signed_by(command: Command, secret: bytes) -> bool:
    """Return whether the request has the signature of this secret; takes the same time for all
    wrong ones.
    """
    fields: Mapping[str, str] = command.fields
    if command.version <= _LATE_UP_TO_VERSION and _LATE_FIELD in fields:
        fields = {name: value for name, value in fields.items() if name != _LATE_FIELD}
    expected = signature(secret, fields, command.body)
    return hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode())
