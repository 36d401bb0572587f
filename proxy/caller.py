"""Which client makes a call, and whose it is: what the headers say.

The signature is of the time that the client writes, and nothing else. Its clock is local in most
clients, so an attacker who has read a header can send it again for a day; only TLS prevents that.
Source: RocketMQ's proxy, DefaultAuthenticationContextBuilder, and the headers of its clients.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code
from remoting.wire.on_behalf import Represented

AUTHORIZATION: Final = "authorization"
DATE: Final = "x-mq-date-time"

_SCHEME: Final = "MQv2-HMAC-SHA1"
_PART: Final = re.compile(r"\s*(\w+)=([^,\s]*)\s*")
_MAX_HEADER_CHARACTERS: Final = 1024
_MAX_DATE_CHARACTERS: Final = 64

# Clocks of clients show local times, of zones up to 14 hours apart, and are wrong by some hours.
_MOST_OFF: Final = timedelta(hours=24)

# host@process@number@time, of 40 to 80 characters. It is kept with the client's settings.
_MAX_CLIENT_ID_CHARACTERS: Final = 255


@dataclass(frozen=True, slots=True)
class Caller:
    """A client, in one of its calls.

    Attributes:
        client_id: chosen by the client; the same in all its calls.
        host: its address, as the connection shows it.
        deadline_s: when it gives the call up, on trio's clock; None if it never does.
        metadata: the headers of the call.
    """

    client_id: str
    host: str
    deadline_s: float | None
    metadata: Mapping[str, str]


def caller_of(metadata: Mapping[str, str], host: str, deadline_s: float | None) -> Caller:
    """Read the headers of a call. Raises Refused (40017): the client does not say its id."""
    client_id = metadata.get("x-mq-client-id", "")
    if not client_id.strip() or not client_id.isprintable():
        raise Refused(Code.CLIENT_ID_REQUIRED, "the header x-mq-client-id has no id of a client")
    if len(client_id) > _MAX_CLIENT_ID_CHARACTERS:
        raise Refused(
            Code.CLIENT_ID_REQUIRED,
            f"x-mq-client-id has {len(client_id)} characters: at most {_MAX_CLIENT_ID_CHARACTERS}",
        )
    return Caller(client_id, host, deadline_s, metadata)


def represented(caller: Caller, now_ms: int) -> Represented:
    """Return the user of a call, and its proof; without a user if the client has not signed.

    Raises Refused (40100): the time that it has signed is another day's.
    """
    header = caller.metadata.get(AUTHORIZATION, "")[:_MAX_HEADER_CHARACTERS]
    scheme, _blank, rest = header.partition(" ")
    parts = {found[1]: found[2] for part in rest.split(",") if (found := _PART.fullmatch(part))}
    # The client in Go writes "user//Rocketmq".
    user = parts.get("Credential", "").partition("/")[0]
    date = caller.metadata.get(DATE, "")
    if scheme != _SCHEME or not user:
        return Represented("", "", "", caller.host)
    signed, now = _time(date), datetime.fromtimestamp(now_ms / 1000, UTC)
    if signed is None or abs(now - signed) > _MOST_OFF:
        raise Refused(
            Code.UNAUTHORIZED,
            f"{DATE} is {date!r:.80}, and here it is {now:%Y%m%dT%H%M%SZ}: set the clock",
        )
    return Represented(user, date, parts.get("Signature", ""), caller.host)


def _time(text: str) -> datetime | None:
    """Read "20261128T000736Z", or what the client in Rust writes, "2026-11-28T00:07:36+01:00"."""
    if len(text) > _MAX_DATE_CHARACTERS:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
