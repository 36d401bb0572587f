"""Frames: real clients' bytes, round trips, pieces, limits and garbage."""

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.net.address import Address
from remoting.net.proxy_header import encode_proxy_header
from remoting.wire.codes import LanguageCode
from remoting.wire.command import ONEWAY_FLAG, Command, HeaderFormat, server_request
from remoting.wire.errors import (
    FieldMissing,
    FrameError,
    FrameMalformed,
    FrameTooLarge,
    ProtocolDiffers,
)
from remoting.wire.frame import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    FrameDecoder,
    decode_frame,
    encode_command,
)
from remoting.wire.other_protocols import _BEGINNINGS

DATA = Path(__file__).parents[1] / "data"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "frames.json").read_text("utf-8"))

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
# Longer ones are not kept as they come.
NAMES = TEXT.filter(lambda name: 0 < len(name) <= 32)
LANGUAGES = st.sampled_from(list(LanguageCode))


def commands(header_format: HeaderFormat) -> st.SearchStrategy[Command]:
    """Commands that the header format can carry."""
    is_json = header_format is HeaderFormat.JSON
    number = INT32 if is_json else st.integers(-(1 << 15), (1 << 15) - 1)
    return st.builds(
        Command,
        code=number,
        fields=st.dictionaries(TEXT, TEXT, max_size=8),
        body=st.binary(max_size=200),
        opaque=INT32,
        flag=INT32,
        # An empty remark and none are the same in a binary header.
        remark=st.none() | (TEXT if is_json else TEXT.filter(bool)),
        language=LANGUAGES | (NAMES if is_json else st.integers(14, 255)),
        version=number,
        header_format=st.just(header_format),
    )


ANY_COMMAND = commands(HeaderFormat.JSON) | commands(HeaderFormat.BINARY)


def as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.feature("F13")
@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_frame_of_a_real_client_is_read_as_recorded(name: str) -> None:
    command = decode_frame((DATA / f"{name}.bin").read_bytes())
    expected = EXPECTED[name]
    fields = {k: as_text(v) for k, v in (expected["extFields"] or {}).items() if v is not None}
    assert command.fields == fields
    assert (command.code, command.flag, command.opaque) == (
        expected["code"],
        expected["flag"],
        expected["opaque"],
    )
    assert command.version == expected["version"]
    assert command.remark == expected["remark"]
    assert isinstance(command.language, LanguageCode)
    assert command.language.name == expected["language"]
    is_binary = expected["serialize"] == "ROCKETMQ"
    assert command.header_format is (HeaderFormat.BINARY if is_binary else HeaderFormat.JSON)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_frame_survives_writing_and_reading(name: str) -> None:
    command = decode_frame((DATA / f"{name}.bin").read_bytes())
    assert decode_frame(encode_command(command)) == command


@pytest.mark.parametrize("name", [name for name in EXPECTED if "binary" in name])
def test_a_recorded_binary_frame_is_written_back_byte_for_byte(name: str) -> None:
    frame = (DATA / f"{name}.bin").read_bytes()
    assert encode_command(decode_frame(frame)) == frame


def test_the_known_binary_route_request_is_written_and_read() -> None:
    frame = bytes.fromhex(
        "00000025 01000021 0069 00 0191 00000001 00000000 00000000"
        "0000000c 0005 746f706963 00000001 54"
    )
    command = Command(
        105,
        {"topic": "T"},
        opaque=1,
        language=LanguageCode.JAVA,
        version=401,
        header_format=HeaderFormat.BINARY,
    )
    assert encode_command(command) == frame
    assert decode_frame(frame) == command


def test_the_prefix_of_a_json_frame_counts_as_the_protocol_says() -> None:
    frame = encode_command(Command(105, {"topic": "T"}, b"body"))
    total, header = struct.unpack_from(">II", frame)
    assert total == len(frame) - 4
    assert header == len(frame) - 8 - len(b"body")
    assert json.loads(frame[8 : 8 + header])["extFields"] == {"topic": "T"}


@given(ANY_COMMAND)
def test_a_command_survives_writing_and_reading(command: Command) -> None:
    assert decode_frame(encode_command(command)) == command


@pytest.mark.feature("F12")
@given(st.lists(ANY_COMMAND, max_size=6), st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_commands_come_out_the_same_whatever_the_pieces(
    sent: list[Command], sizes: list[int]
) -> None:
    stream = b"".join(encode_command(command) for command in sent)
    decoder = FrameDecoder()
    received: list[Command] = []
    at, turn = 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        received += decoder.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert received == sent
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("piece", [1, 7, 4095, 4096, 5000, 65536])
def test_a_large_body_comes_out_whole_whatever_the_pieces(piece: int) -> None:
    body = bytes(range(256)) * 400
    after = Command(2, {}, b"after")
    stream = encode_command(Command(1, {"k": "v" * 5000}, body)) + encode_command(after)
    decoder = FrameDecoder()
    received: list[Command] = []
    for at in range(0, len(stream), piece):
        received += decoder.feed(stream[at : at + piece])
    assert [command.body for command in received] == [body, b"after"]


@given(st.lists(st.binary(max_size=300), max_size=12))
def test_garbage_raises_nothing_but_frame_errors(pieces: list[bytes]) -> None:
    decoder = FrameDecoder(max_frame_bytes=4096)
    for piece in pieces:
        with suppress(FrameError):
            decoder.feed(piece)
        assert decoder.buffered_bytes < 4096 + 4


@given(ANY_COMMAND, st.data())
def test_a_damaged_frame_raises_nothing_but_frame_errors(command: Command, data: Any) -> None:
    frame = bytearray(encode_command(command))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    decoder = FrameDecoder(max_frame_bytes=len(frame) + 64)
    with suppress(FrameError):
        for got in decoder.feed(bytes(frame)):
            assert decode_frame(encode_command(got)).fields == got.fields
    assert decoder.error is None or decoder.buffered_bytes == 0


def test_a_frame_of_16_mib_plus_one_is_refused_by_its_first_eight_bytes() -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameTooLarge) as caught:
        decoder.feed(struct.pack(">II", MAX_FRAME_BYTES + 1, 10))
    assert caught.value.size_bytes == MAX_FRAME_BYTES + 1
    assert decoder.buffered_bytes == 0


def test_a_frame_of_exactly_16_mib_is_taken() -> None:
    header = len(encode_command(Command(1))) - 8
    frame = encode_command(Command(1, {}, bytes(MAX_FRAME_BYTES - 4 - header)))
    decoder = FrameDecoder()
    received: list[Command] = []
    for at in range(0, len(frame), 1 << 20):
        received += decoder.feed(frame[at : at + (1 << 20)])
    assert [len(command.body) for command in received] == [MAX_FRAME_BYTES - 4 - header]


def test_a_header_over_its_limit_is_refused_before_it_arrives() -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameTooLarge, match="header"):
        decoder.feed(struct.pack(">II", MAX_HEADER_BYTES + 100, MAX_HEADER_BYTES + 1))


def test_what_no_peer_would_take_is_not_written() -> None:
    with pytest.raises(FrameTooLarge):
        encode_command(Command(10, {}, bytes(MAX_FRAME_BYTES)))
    with pytest.raises(FrameTooLarge, match="header"):
        encode_command(Command(10, {"properties": "x" * MAX_HEADER_BYTES}))
    with pytest.raises(FrameMalformed, match="binary"):
        encode_command(Command(200050, header_format=HeaderFormat.BINARY))


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        (struct.pack(">II", 10, 7), "header of 7 bytes in a frame of 10"),
        (struct.pack(">II", 3, 0), "header of 0 bytes in a frame of 3"),
        (struct.pack(">II", 10, 2 << 24 | 6), "unknown header type 2"),
        (struct.pack(">II", 6, 2) + b"{}", "code is not"),
        (struct.pack(">II", 6, 2) + b"[]", "not a JSON object"),
        (struct.pack(">II", 6, 2) + b"\xff\xfe", "not JSON"),
        (struct.pack(">II", 4, 0), "not JSON"),
        (struct.pack(">II", 9, 1 << 24 | 5) + b"\0\0\0\0\0", "ends early"),
    ],
)
def test_a_malformed_frame_says_what_is_wrong(prefix: bytes, reason: str) -> None:
    with pytest.raises(FrameMalformed, match=reason):
        FrameDecoder().feed(prefix)


@pytest.mark.parametrize(
    "header",
    [
        {"code": "105"},
        {"code": True},
        {"code": 1 << 31},
        {"code": 1, "opaque": 1.5},
        {"code": 1, "flag": None},
        {"code": 1, "extFields": []},
    ],
)
def test_a_header_with_a_value_of_a_wrong_type_is_refused(header: dict[str, object]) -> None:
    text = json.dumps(header).encode()
    with pytest.raises(FrameMalformed):
        decode_frame(struct.pack(">II", 4 + len(text), len(text)) + text)


def test_a_header_nested_without_end_is_refused() -> None:
    text = b'{"code":1,"extFields":' + b"[" * 100_000
    with pytest.raises(FrameMalformed):
        decode_frame(struct.pack(">II", 4 + len(text), len(text)) + text)


def test_good_frames_before_a_bad_one_are_delivered_and_the_error_stays() -> None:
    decoder = FrameDecoder()
    good = Command(34, {}, b"x")
    assert decoder.feed(encode_command(good) + b"GET / HTTP/1.1\r\n\r\n") == [good]
    assert isinstance(decoder.error, FrameError)
    for _ in range(2):
        with pytest.raises(FrameError):
            decoder.feed(encode_command(good))


def test_values_that_are_not_text_become_the_text_a_java_client_would_send() -> None:
    header = (
        b'{"code":310,"flag":0,"opaque":7,"language":"CPP","version":63,"extFields":'
        b'{"n":4,"big":9223372036854775807,"t":true,"f":false,"none":null,"x":1.50,"s":"\\u0001"}}\n'
    )
    command = decode_frame(struct.pack(">II", 4 + len(header), len(header)) + header)
    assert command.fields == {
        "n": "4",
        "big": "9223372036854775807",
        "t": "true",
        "f": "false",
        "x": "1.50",
        "s": "\x01",
    }


def test_half_a_surrogate_pair_in_a_header_becomes_text_that_can_be_written() -> None:
    header = b'{"code":1,"remark":"\\udc00","extFields":{"k":"a\\uD83Db","ok":"\\ud83d\\ude00"}}'
    command = decode_frame(struct.pack(">II", 4 + len(header), len(header)) + header)
    assert command.fields == {"k": "a\ufffdb", "ok": "\U0001f600"}
    assert command.remark == "\ufffd"


def test_languages_we_do_not_know_are_carried_as_they_came() -> None:
    header = b'{"code":1,"language":"ZIG"}'
    command = decode_frame(struct.pack(">II", 4 + len(header), len(header)) + header)
    assert command.language == "ZIG"
    assert b'"language":"ZIG"' in encode_command(command)
    binary = Command(1, language=77, header_format=HeaderFormat.BINARY)
    assert decode_frame(encode_command(binary)).language == 77


def test_a_reply_has_what_every_client_needs() -> None:
    request = Command(10, opaque=9, header_format=HeaderFormat.JSON, language="ZIG", version=63)
    header = json.loads(encode_command(request.reply(0))[8:])
    assert header["extFields"] == {}
    assert header["opaque"] == 9
    assert header["flag"] == 1
    assert header["language"] == "JAVA"
    assert 401 <= header["version"] <= 475
    numbered = json.loads(encode_command(request.reply(0, {"offset": "5"}))[8:])
    assert numbered["extFields"] == {"offset": "5"}


@pytest.mark.feature("F13")
def test_a_reply_is_written_in_the_format_of_its_request() -> None:
    request = Command(105, opaque=3, header_format=HeaderFormat.BINARY)
    assert request.reply(17, remark="no").header_format is HeaderFormat.BINARY


def test_a_reply_to_a_oneway_request_keeps_the_mark() -> None:
    reply = Command(15, flag=ONEWAY_FLAG).reply()
    assert reply.is_response
    assert reply.is_oneway


def test_a_request_of_a_server_is_no_reply_and_names_a_language_all_know() -> None:
    request = server_request(40, {"consumerGroup": "g"})
    assert not request.is_response
    assert request.language is LanguageCode.JAVA


def test_fields_are_read_with_their_types() -> None:
    command = Command(11, {"n": "-5", "t": "TRUE", "one": "1", "no": "0", "empty": "", "x": "7x"})
    assert command.integer("n") == -5
    assert command.integer("missing", 3) == 3
    assert command.integer("empty", 4) == 4
    assert command.boolean("t")
    assert command.boolean("one")
    assert not command.boolean("no")
    assert command.boolean("missing", True)
    assert command.text("x") == "7x"


@pytest.mark.parametrize("value", ["7x", "1_0", "9223372036854775808", "9" * 5000, "1.5"])
def test_a_number_that_is_none_is_refused_by_name(value: str) -> None:
    with pytest.raises(FieldMissing) as caught:
        Command(11, {"queueId": value}).integer("queueId")
    assert caught.value.field == "queueId"
    assert len(str(caught.value)) < 200


def test_a_missing_field_is_named_as_rocketmq_names_it() -> None:
    with pytest.raises(FieldMissing, match="the custom field <topic> is null"):
        Command(105).text("topic")


# The first bytes of connections, as programs send them.
SPOKEN = {
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(32),
    "HTTP/2, as gRPC has it": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a PROXY header": encode_proxy_header(Address("10.0.0.1", 1), Address("10.0.0.2", 2)),
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "AMQP": b"AMQP\x00\x00\x09\x01",
}
SPOKEN_HTTP = (
    *(f"{method} / HTTP/1.1\r\n".encode() for method in ("GET", "POST", "PUT", "HEAD", "DELETE")),
    b"OPTIONS * HTTP/1.1\r\n",
    b"HTTP/1.1 400 Bad Request\r\n",
)


def test_another_protocol_is_told_by_its_name_and_what_to_do() -> None:
    spoken = [*SPOKEN.items(), *(("HTTP", data) for data in SPOKEN_HTTP)]
    spoken.append(("a PROXY header", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"))
    assert {name for name, _data in spoken} == {other.name for other in _BEGINNINGS.values()}
    for name, data in spoken:
        with pytest.raises(ProtocolDiffers, match="not RocketMQ's remoting: ") as raised:
            FrameDecoder().feed(data)
        assert raised.value.protocol == name
    with pytest.raises(FrameTooLarge):
        FrameDecoder().feed(b"\x70\x00\x00\x00nothing known")
