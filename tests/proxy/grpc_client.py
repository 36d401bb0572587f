"""A small gRPC client on trio: `h2` is its side of HTTP/2. It serves tests of the proxy."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import trio
from google.protobuf.message import Message
from h2.exceptions import ProtocolError

from proxy.wire import messages_pb2 as messages

SERVICE = "/apache.rocketmq.v2.MessagingService/"
_PREFIX = struct.Struct(">BI")
_Response = TypeVar("_Response", bound=Message)


class GrpcFailed(Exception):
    """A call ended with another status of gRPC than 0."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class ClientCall:
    """One call.

    Attributes:
        headers: of the answer, trailers included.
        is_over: no more of the answer comes.
        reset_code: with which the server has reset the call.
    """

    def __init__(self, client: GrpcClient, stream_id: int) -> None:
        self._client = client
        self._stream_id = stream_id
        self._data = bytearray()
        self.headers: dict[str, str] = {}
        self.is_over = False
        self.reset_code: int | None = None
        self.changed = trio.Event()

    async def send(self, message: Message | bytes, *, is_last: bool = False) -> None:
        """Send a message, as far as the windows take it."""
        body = message if isinstance(message, bytes) else message.SerializeToString()
        await self._client.send_data(
            self, self._stream_id, _PREFIX.pack(0, len(body)) + body, is_last=is_last
        )

    async def end(self) -> None:
        """Send no more."""
        await self._client.send_data(self, self._stream_id, b"", is_last=True)

    async def receive(self) -> bytes | None:
        """The next message; None after the last. Raises GrpcFailed."""
        while True:
            if len(self._data) >= _PREFIX.size:
                _flag, size = _PREFIX.unpack_from(self._data)
                if len(self._data) >= _PREFIX.size + size:
                    body = bytes(self._data[_PREFIX.size : _PREFIX.size + size])
                    del self._data[: _PREFIX.size + size]
                    return body
            if self.is_over:
                code = int(self.headers.get("grpc-status", "-1"))
                if code:
                    raise GrpcFailed(code, unquote(self.headers.get("grpc-message", "")))
                return None
            await self.changed.wait()

    async def until_headers(self) -> None:
        """Wait for the headers of the answer."""
        while not self.headers:
            await self.changed.wait()

    async def cancel(self) -> None:
        """Tell the server that nobody waits for the answer."""
        await self._client.reset(self._stream_id)

    def take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            self._data += event.data or b""
        elif isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            for name, value in event.headers or ():
                self.headers[_text(name)] = _text(value)
        elif isinstance(event, h2.events.StreamReset):
            self.reset_code, self.is_over = int(event.error_code or 0), True
        elif isinstance(event, h2.events.StreamEnded):
            self.is_over = True
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class GrpcClient:
    """One connection, of one client of RocketMQ.

    Args:
        stream: to the server.
        client_id: in the headers of its calls; None sends none.
        signs: makes the headers that prove a user.

    Attributes:
        takes: whether it gives windows back for what it has got.
        is_over: the connection has ended.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        client_id: str | None = "host@1@0@test",
        signs: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.client_id = client_id
        self.signs = signs
        self.takes = True
        self.is_over = False
        self._stream = stream
        self._calls: dict[int, ClientCall] = {}
        self._writes = trio.Lock()
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self._http2 = h2.connection.H2Connection(config)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read what the server sends, until the connection ends."""
        self._http2.initiate_connection()
        await self._flush()
        task_status.started()
        try:
            while data := await self._stream.receive_some(65536):
                for event in self._http2.receive_data(bytes(data)):
                    self._take(event)
                await self._flush()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except ProtocolError:  # `h2` takes nothing after a GOAWAY
            await self.close()
        self.is_over = True
        for call in self._calls.values():
            call.is_over = True
            call.wake()

    def _take(self, event: h2.events.Event) -> None:
        stream_id = getattr(event, "stream_id", None)
        if isinstance(event, h2.events.DataReceived) and self.takes:
            count = event.flow_controlled_length
            if count:
                self._http2.acknowledge_received_data(count, event.stream_id)
        if isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            for call in self._calls.values():
                call.wake()
        elif stream_id in self._calls:
            call = self._calls[stream_id]
            call.take(event)
            if call.is_over:
                del self._calls[stream_id]

    async def _flush(self) -> None:
        async with self._writes:
            data = self._http2.data_to_send()
            if data:
                try:
                    await self._stream.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.is_over = True

    async def call(
        self, method: str, *, timeout_s: float | None = None, **metadata: str
    ) -> ClientCall:
        """Begin a call; names in `metadata` have "_" for "-"."""
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method if method.startswith("/") else SERVICE + method,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        if self.client_id is not None:
            headers["x-mq-client-id"] = self.client_id
        if timeout_s is not None:
            headers["grpc-timeout"] = f"{round(timeout_s * 1000)}m"
        headers |= self.signs()
        headers |= {name.replace("_", "-"): value for name, value in metadata.items()}
        stream_id = self._http2.get_next_available_stream_id()
        self._http2.send_headers(stream_id, list(headers.items()))
        call = self._calls[stream_id] = ClientCall(self, stream_id)
        await self._flush()
        return call

    async def send_data(
        self, call: ClientCall, stream_id: int, data: bytes, *, is_last: bool
    ) -> None:
        rest = memoryview(data)
        while rest:
            room = min(
                self._http2.local_flow_control_window(stream_id),
                self._http2.max_outbound_frame_size,
            )
            if not room:
                await call.changed.wait()
                if call.is_over:
                    return
                continue
            self._http2.send_data(stream_id, bytes(rest[:room]))
            rest = rest[room:]
            await self._flush()
        if is_last:
            self._http2.end_stream(stream_id)
        await self._flush()

    async def reset(self, stream_id: int) -> None:
        self._http2.reset_stream(stream_id, 8)
        await self._flush()

    async def close(self) -> None:
        """End the connection without a word."""
        await self._stream.aclose()

    async def unary(self, request: Message, **more: Any) -> Any:
        """The answer to a request, whose type names the method. Raises GrpcFailed."""
        name = type(request).__name__.removesuffix("Request")
        call = await self.call(name, **more)
        await call.send(request, is_last=True)
        data = await call.receive()
        assert data is not None
        assert await call.receive() is None
        return getattr(messages, f"{name}Response").FromString(data)

    async def receive(
        self, request: messages.ReceiveMessageRequest, *, timeout_s: float | None = 23.0
    ) -> Received:
        """What a receive gets."""
        call = await self.call("ReceiveMessage", timeout_s=timeout_s)
        await call.send(request, is_last=True)
        return await Received.read(call)

    async def telemetry(self, **more: Any) -> Telemetry:
        """A new stream of commands."""
        call = await self.call("Telemetry", **more)
        return Telemetry(call)


class Received:
    """The answer to a receive.

    Attributes:
        code: of its status.
        text: of its status.
        messages: that were given.
        given_at: the time of delivery, if it was told.
    """

    def __init__(self) -> None:
        self.code = 0
        self.text = ""
        self.messages: list[messages.Message] = []
        self.given_at = False

    @classmethod
    async def read(cls, call: ClientCall) -> Received:
        found = cls()
        while (data := await call.receive()) is not None:
            part = messages.ReceiveMessageResponse.FromString(data)
            assert not found.given_at, "the time of delivery is the last part"
            match part.WhichOneof("content"):
                case "status":
                    found.code, found.text = part.status.code, part.status.message
                case "message":
                    assert found.code, "the status comes first"
                    found.messages.append(part.message)
                case _:
                    found.given_at = True
        return found

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class Telemetry:
    """A stream of commands, seen from the client."""

    def __init__(self, call: ClientCall) -> None:
        self.call = call

    async def send(self, command: messages.TelemetryCommand | messages.Settings) -> None:
        if isinstance(command, messages.Settings):
            command = messages.TelemetryCommand(settings=command)
        await self.call.send(command)

    async def receive(self) -> messages.TelemetryCommand | None:
        data = await self.call.receive()
        return None if data is None else messages.TelemetryCommand.FromString(data)

    async def settle(self, settings: messages.Settings) -> messages.Settings:
        """Send settings; those that the proxy gives."""
        await self.send(settings)
        told = await self.receive()
        assert told is not None
        assert told.status.code == messages.Code.OK, told.status
        return told.settings


def signer(
    user: str,
    secret: str,
    *,
    date: str | None = None,
    suffix: str = "",
    is_upper: bool = False,
) -> Callable[[], dict[str, str]]:
    """What makes the headers of a user's calls."""

    def headers() -> dict[str, str]:
        shown = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ") if date is None else date
        proof = hmac.new(secret.encode(), shown.encode(), hashlib.sha1).hexdigest()
        proof = proof.upper() if is_upper else proof
        return {
            "x-mq-date-time": shown,
            "authorization": f"MQv2-HMAC-SHA1 Credential={user}{suffix}, "
            f"SignedHeaders=x-mq-date-time, Signature={proof}",
        }

    return headers
