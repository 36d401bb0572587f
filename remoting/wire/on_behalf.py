"""Fields by which a proxy asks on behalf of a client, whose signature is RocketMQ 5's.

That signature is of the time alone: it does not cover what is asked. So brokers take it only from a
super user, whose own signature covers the whole request, and judge the request by the rights of the
client's user. The proxy needs no client's secret. RocketMQ's proxies have other ways, and ignore
these fields; they are this project's.
"""

import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

from remoting.wire.signature import ACCESS_KEY, SIGNATURE

USER: Final = "onBehalfOf"
DATE: Final = "callerDate"
PROOF: Final = "callerSignature"
HOST: Final = "callerHost"


# The fields that prove who asks. The last one is of clients with temporary secrets.
_PROOFS: Final = frozenset({ACCESS_KEY, SIGNATURE, USER, DATE, PROOF, HOST, "SecurityToken"})


class Represented(NamedTuple):
    """Whom a proxy speaks for.

    Attributes:
        user: its name; empty if the client has not signed.
        date: what it has signed.
        proof: hexadecimal HMAC-SHA1 of `date`, with the user's secret as key.
        host: the client's address.
    """

    user: str
    date: str
    proof: str
    host: str

    def add_to(self, fields: dict[str, str]) -> None:
        fields.update({USER: self.user, DATE: self.date, PROOF: self.proof, HOST: self.host})

    def is_proven(self, secret: bytes) -> bool:
        """Return whether a secret made the proof; takes the same time for all wrong ones."""
        expected = hmac.digest(secret, self.date.encode(), "sha1").hex()
        return hmac.compare_digest(expected.encode(), self.proof.lower().encode())


def represented_in(fields: Mapping[str, str]) -> Represented | None:
    """Return whom a request is for; None for its signer."""
    user = fields.get(USER)
    if user is None:
        return None
    return Represented(user, fields.get(DATE, ""), fields.get(PROOF, ""), fields.get(HOST, ""))


def without_proofs(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a request that may be shown to others. With its signature they could
    send it again, and, as names of fields and the request's code are not signed, other requests.
    """
    return {name: text for name, text in fields.items() if name not in _PROOFS}
