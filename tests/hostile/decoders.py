"""Every decoder of bytes that come from outside, and how its values are written again."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.errors import CommandMalformed, EntryTooNew
from broker.features import REGISTRY
from broker.log.entry import encode_log_command
from remoting.bodies.consumer_group import (
    MAX_QUEUE_LOCK_BYTES,
    decode_consumer_list,
    decode_locked_queues,
    decode_queue_lock,
    encode_consumer_list,
    encode_locked_queues,
    encode_queue_lock,
)
from remoting.bodies.heartbeat import MAX_HEARTBEAT_BYTES, decode_heartbeat, encode_heartbeat
from remoting.bodies.message_queue import decode_queue_keyed, encode_queue_keyed
from remoting.bodies.registration import decode_registration, encode_registration
from remoting.bodies.route import (
    decode_cluster_info,
    decode_route,
    encode_cluster_info,
    encode_route,
)
from remoting.bodies.table import (
    decode_properties_text,
    decode_table,
    decode_topic_list,
    encode_properties_text,
    encode_table,
    encode_topic_list,
)
from remoting.message.batch import decode_batch_body, encode_batch_body
from remoting.message.errors import MessageMalformed
from remoting.message.message_id import OffsetMessageId, message_id, parse_message_id
from remoting.message.properties import decode_properties, encode_properties
from remoting.message.record import (
    COMPRESSED_FLAG,
    MessageRecord,
    body_of,
    decode_records,
    encode_record,
)
from remoting.net.address import parse_address
from remoting.net.errors import AddressMalformed
from remoting.net.proxy_header import ProxyHeaderMalformed, decode_proxy_header
from remoting.net.relayed_names import LENGTH_BYTES, NamesMalformed, decode_names, encode_names
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed, FrameError, FrameMalformed, FrameTooLarge
from remoting.wire.frame import FrameDecoder, decode_frame, encode_command
from remoting.wire.frame_watch import FrameWatch
from remoting.wire.header_binary import decode_binary_header, encode_binary_header
from remoting.wire.header_json import decode_json_header, encode_json_header
from remoting.wire.loose_json import compact_json, parse_json

CORPUS = Path(__file__).parent / "data" / "corpus"
FRAMES = Path(__file__).parent / "data" / "frames"


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder of one kind of bytes.

    Attributes:
        decode: bytes to a value.
        errors: the only errors it may raise.
        encode: a value to bytes, or None where nothing is written.
        refuses: errors of `encode` for values that can be read and not be written, such as a topic
            that is too long.
        decode_again: reads what `encode` writes, where that is another form.
        max_bytes: the longest input that is read. What an input leaves out is written out, so that
            a long one can become too long.
    """

    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    encode: Callable[[Any], bytes] | None = None
    refuses: tuple[type[Exception], ...] = ()
    decode_again: Callable[[bytes], Any] | None = None
    max_bytes: int | None = None

    def check(self, data: bytes) -> None:
        """Raise what `decode` must not raise, or AssertionError when a value is not kept."""
        try:
            value = self.decode(data)
        except self.errors:
            return
        if self.encode is None:
            return
        try:
            written = self.encode(value)
        except self.refuses:
            return
        if self.max_bytes is not None and len(written) > self.max_bytes:
            return
        again = (self.decode_again or self.decode)(written)
        # NaN is unequal to itself.
        assert again == value or repr(again) == repr(value), (
            f"{value!r:.300} is read as {again!r:.300}"
        )


def _fed_in_pieces(data: bytes) -> list[Command]:
    """The commands of a stream that comes in pieces of growing length."""
    decoder = FrameDecoder()
    commands: list[Command] = []
    at, size = 0, 1
    while at < len(data) and decoder.error is None:
        commands += decoder.feed(data[at : at + size])
        at, size = at + size, size * 2 + 1
    return commands


def _watched(data: bytes) -> list[Command]:
    """What a relay sees of a stream, which is what the server behind it decodes."""
    watch, decoder = FrameWatch(kept_code=RequestCode.HEART_BEAT), FrameDecoder()
    seen: list[Command] = []
    decoded: list[Command] = []
    at, size = 0, 1
    while at < len(data) and decoder.error is None:
        seen += watch.pass_by(data[at : at + size])
        decoded += decoder.feed(data[at : at + size])
        at, size = at + size, size * 2 + 1
    assert [(one.code, one.opaque) for one in seen[: len(decoded)]] == [
        (one.code, one.opaque) for one in decoded
    ]
    if watch.is_lost and decoder.error is None:
        # The relay looks at a header before the frame is whole; the server refuses it then.
        decoder.feed(bytes(_missing_bytes(data)))
        assert decoder.error is not None
    return seen


def _missing_bytes(stream: bytes) -> int:
    """How many bytes the last frame of a stream lacks."""
    at = 0
    while at < len(stream):
        at += 4 + int.from_bytes(stream[at : at + 4])
    return at - len(stream)


def _message_id(value: OffsetMessageId) -> bytes:
    return message_id(value.host, value.port, value.physical_offset).encode()


def _body(
    decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], max_bytes: int | None = None
) -> Decoder:
    return Decoder(decode, (BodyMalformed,), encode, max_bytes=max_bytes)


_MESSAGE = (MessageMalformed,)

DECODERS: dict[str, Decoder] = {
    "frame": Decoder(decode_frame, (FrameError,), encode_command, (FrameTooLarge,)),
    "stream": Decoder(
        _fed_in_pieces, (FrameError,), lambda commands: b"".join(map(encode_command, commands))
    ),
    "frame-watch": Decoder(_watched, (FrameError,)),
    "header-json": Decoder(
        lambda data: decode_json_header(data, b""), (FrameMalformed,), encode_json_header
    ),
    "header-binary": Decoder(
        lambda data: decode_binary_header(data, b""),
        (FrameMalformed,),
        encode_binary_header,
        (FrameMalformed,),
    ),
    "json": _body(
        lambda data: parse_json("json", data), lambda value: compact_json(value).encode()
    ),
    "heartbeat": _body(decode_heartbeat, encode_heartbeat, MAX_HEARTBEAT_BYTES),
    "queue-lock": _body(decode_queue_lock, encode_queue_lock, MAX_QUEUE_LOCK_BYTES),
    "locked-queues": _body(decode_locked_queues, encode_locked_queues),
    "consumer-list": _body(decode_consumer_list, encode_consumer_list),
    "route": _body(decode_route, encode_route),
    "cluster-info": _body(decode_cluster_info, encode_cluster_info),
    "registration": _body(decode_registration, encode_registration),
    "registration-compressed": Decoder(
        lambda data: decode_registration(data, compressed=True),
        (BodyMalformed,),
        encode_registration,
        decode_again=decode_registration,
    ),
    "registration-inflated": Decoder(
        lambda data: decode_registration(zlib.compress(data, 1), compressed=True),
        (BodyMalformed,),
        encode_registration,
        decode_again=decode_registration,
    ),
    "queue-keyed": _body(
        lambda data: decode_queue_keyed("offsets", "offsetTable", data),
        lambda value: encode_queue_keyed("offsetTable", value.items()),
    ),
    "table": _body(decode_table, encode_table),
    "topic-list": _body(decode_topic_list, encode_topic_list),
    "settings": _body(decode_properties_text, encode_properties_text),
    "records": Decoder(
        decode_records,
        _MESSAGE,
        lambda records: b"".join(map(encode_record, records)),
        _MESSAGE,
    ),
    "batch": Decoder(decode_batch_body, _MESSAGE, encode_batch_body, _MESSAGE),
    "compressed-body": Decoder(
        lambda data: body_of(MessageRecord("T", data, system_flag=COMPRESSED_FLAG)), _MESSAGE
    ),
    "properties": Decoder(decode_properties, (), encode_properties, _MESSAGE),
    "message-id": Decoder(
        lambda data: parse_message_id(data.decode("utf-8", "replace")), _MESSAGE, _message_id
    ),
    "address": Decoder(
        lambda data: parse_address(data.decode("utf-8", "replace")),
        (AddressMalformed,),
        lambda address: str(address).encode(),
    ),
    "proxy-header": Decoder(decode_proxy_header, (ProxyHeaderMalformed,)),
    "relayed-names": Decoder(
        decode_names, (NamesMalformed,), lambda names: encode_names(names)[LENGTH_BYTES:]
    ),
    "log-command": Decoder(REGISTRY.decode, (CommandMalformed, EntryTooNew), encode_log_command),
}


def corpus_of(name: str) -> list[bytes]:
    """The kept inputs of a decoder, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def recorded_frames() -> list[bytes]:
    """Requests that real clients sent, one of each kind, in the order of their names."""
    return [path.read_bytes() for path in sorted(FRAMES.iterdir())]
