"""Requests that are right but for one part, and a plain socket that sends them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import trio

from remoting.net.address import parse_address
from remoting.wire.command import Command
from remoting.wire.errors import FrameError
from remoting.wire.frame import FrameDecoder
from remoting.wire.loose_json import compact_json
from remoting.wire.signature import ACCESS_KEY, SIGNATURE, Credentials
from tests.hostile.hostile_values import BODIES, VALUES, with_each_value_replaced

# Fields as JSON texts, and a body.
Request = tuple[dict[str, str], bytes]


def attacks(fields: Mapping[str, object], body: bytes) -> Iterator[Request]:
    """The request itself, then each field and each member of the body in turn hostile."""
    right = {name: compact_json(str(value)) for name, value in fields.items()}
    yield right, body
    yield {}, body
    for name in (*fields, "unknown"):
        yield {other: value for other, value in right.items() if other != name}, body
        for value in VALUES:
            yield {**right, name: value}, body
    for hostile in (*BODIES, *with_each_value_replaced(body)):
        yield right, hostile


def frame_of(code: int, request: Request, opaque: int) -> bytes:
    """The whole frame of a request."""
    fields, body = request
    ext = ",".join([f"{compact_json(name)}:{value}" for name, value in fields.items()])
    header = (
        f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":{opaque},'
        '"serializeTypeCurrentRPC":"JSON","version":409}'
    ).encode()
    total = 4 + len(header) + len(body)
    return total.to_bytes(4) + len(header).to_bytes(4) + header + body


class Wire:
    """A plain socket: one request at a time, signed by a user if there is one."""

    def __init__(self, stream: trio.SocketStream, user: Credentials | None = None) -> None:
        self._user = user
        self._stream = stream
        self._decoder = FrameDecoder()
        self._replies: dict[int, Command] = {}
        self._opaque = 0

    async def ask(self, code: int, request: Request) -> Command:
        """Send a request and wait for its reply; requests of the server are passed over."""
        self._opaque += 1
        frame = frame_of(code, self._signed(code, request), self._opaque)
        with trio.fail_after(30):
            await self._stream.send_all(frame)
            while self._opaque not in self._replies:
                data = await self._stream.receive_some(1 << 16)
                assert data, f"closed instead of an answer to {frame[:300]!r}"
                for command in self._decoder.feed(bytes(data)):
                    if command.is_response:
                        self._replies[command.opaque] = command
        return self._replies.pop(self._opaque)

    def _signed(self, code: int, request: Request) -> Request:
        if self._user is None:
            return request
        fields, body = request
        try:
            (command,) = FrameDecoder().feed(frame_of(code, request, 0))
        except FrameError:
            return request  # refused before anybody looks for a signature
        self._user.sign(command)
        signed = {name: json.dumps(command.fields[name]) for name in (ACCESS_KEY, SIGNATURE)}
        return {**fields, **signed}, body

    async def ends_after(self, data: bytes) -> bool:
        """Send bytes; whether the server then closes the connection."""
        with trio.move_on_after(30):
            try:
                await self._stream.send_all(data)
                while await self._stream.receive_some(1 << 16):
                    continue
            except trio.BrokenResourceError:
                return True
            return True
        return False


@asynccontextmanager
async def wire_to(address: str, user: Credentials | None = None) -> AsyncIterator[Wire]:
    """Connect."""
    host, port = parse_address(address)
    async with await trio.open_tcp_stream(host, port) as stream:
        yield Wire(stream, user)
