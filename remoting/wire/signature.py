"""Signs requests, and checks signatures, as RocketMQ's clients of version 4 do.

The signature is the base64 text of HMAC-SHA1, with the user's secret as key, over the values of all
fields in the order of their names, without the signature's own, and then the body. Names are not
signed, and nothing tells one request from its repetition: an attacker who can read or change
packets can send a request again, or move text from one field to the next. Only TLS prevents that.
"""

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Final, TypeAlias

from remoting.wire.command import Command

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"

# RocketMQ 4's clients up to this version add this field after they have signed.
_LATE_FIELD: Final = "_UNIQUE_KEY_QUERY"
_LATE_UP_TO_VERSION: Final = 399

_Order: TypeAlias = Callable[[list[str]], tuple[str, ...]]

# Requests of one kind have the same fields, so the order of their values is remembered, by their
# names if the signature was right: 1 024 orders of 4 KiB at most.
_orders: Final[dict[tuple[str, ...], _Order]] = {}
_MAX_ORDERS: Final = 1024
_MAX_NAMES: Final = 64
_MAX_NAME_CHARACTERS: Final = 1024

_BLOCK_BYTES: Final = 64


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
        fields[SIGNATURE] = _signer_of(self.secret_key).signature(fields, command.body)


class Signer:
    """Makes and checks the signatures of one secret.

    The states of HMAC's two hashes after its key (RFC 2104) are kept: a signature goes on from
    copies of them, which takes half the time.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: bytes) -> None:
        key = secret if len(secret) <= _BLOCK_BYTES else hashlib.sha1(secret).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in key))
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in key))

    def signature(self, fields: Mapping[str, str], body: bytes) -> str:
        return self._signature(_sorted_values(fields), body).decode()

    def has_signed(self, command: Command) -> bool:
        """Return whether a request has the signature of this secret; takes the same time for all
        wrong ones.
        """
        fields: Mapping[str, str] = command.fields
        if command.version <= _LATE_UP_TO_VERSION and _LATE_FIELD in fields:
            fields = {name: value for name, value in fields.items() if name != _LATE_FIELD}
        names = tuple(fields)
        order = _orders.get(names)
        values = _sorted_values(fields) if order is None else order(list(fields.values()))
        expected = self._signature(values, command.body)
        if not hmac.compare_digest(expected, fields.get(SIGNATURE, "").encode()):
            return False
        if order is None:
            _remember_order(names)
        return True

    def _signature(self, texts: Iterable[str], body: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update("".join(texts).encode())
        inner.update(body)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


def _sorted_values(fields: Mapping[str, str]) -> list[str]:
    return [text for name, text in sorted(fields.items()) if name != SIGNATURE]


def _remember_order(names: tuple[str, ...]) -> None:
    signed = sorted([name for name in names if name != SIGNATURE])
    if not 2 <= len(signed) <= _MAX_NAMES or sum(map(len, names)) > _MAX_NAME_CHARACTERS:
        return  # a getter of one name returns no tuple
    if len(_orders) >= _MAX_ORDERS:
        _orders.clear()
    _orders[names] = itemgetter(*map(names.index, signed))


@lru_cache(maxsize=64)  # a process signs by one user, or by a few
def _signer_of(secret: str) -> Signer:
    return Signer(secret.encode())
