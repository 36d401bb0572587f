"""What a connection tells its owner. Pure."""

from typing import NamedTuple, TypeAlias

from proxy.http2.request_head import RequestHead
from proxy.http2.stream import Stream


class Requested(NamedTuple):
    """A request began; it has no body if `stream.has_remote_ended`."""

    stream: Stream
    head: RequestHead


class Received(NamedTuple):
    """A part of a request's body came, or its end: see `stream.has_remote_ended`."""

    stream: Stream
    data: bytes


class Reset(NamedTuple):
    """A stream ended before its answer was sent whole."""

    stream: Stream
    reason: str


class Sent(NamedTuple):
    """All that waited for windows was sent."""

    stream: Stream


Event: TypeAlias = Requested | Received | Reset | Sent
