"""Which client makes a call: what its headers say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code

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
