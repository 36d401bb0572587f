"""The binary form of a frame's header (type byte 1), an option of Java clients.

Layout, big-endian: code i16, language u8, version i16, opaque i32, flag i32, remark length i32 and
text, fields length i32 and entries; an entry is name length i16, name, value length i32, value.
Source: RocketMQ's "ROCKETMQ" serialization. Codes above 32767 (the POP family) do not fit.
"""

import struct
from typing import Final

from remoting.wire.codes import LANGUAGE_BY_NAME, LanguageCode, language_numbered
from remoting.wire.command import Command, HeaderFormat
from remoting.wire.errors import FrameMalformed

_FIXED: Final = struct.Struct(">hBhiii")  # up to and with the remark's length
_LENGTH: Final = struct.Struct(">i")
_NAME_LENGTH: Final = struct.Struct(">h")

_INT16_MAX: Final = (1 << 15) - 1
_UINT8_MAX: Final = (1 << 8) - 1


def encode_binary_header(command: Command) -> bytes:
    """Encode the header of `command`, without the body.

    Raises:
        FrameMalformed: the code or version does not fit 16 bits, or a name is over 32767 bytes.
    """
    language = command.language
    if isinstance(language, str):
        language = LANGUAGE_BY_NAME.get(language, LanguageCode.OTHER)
    if not 0 <= language <= _UINT8_MAX:
        language = LanguageCode.OTHER
    remark = b"" if command.remark is None else command.remark.encode()
    parts: list[bytes] = []
    for name, value in command.fields.items():
        name_bytes = name.encode()
        value_bytes = value.encode()
        if len(name_bytes) > _INT16_MAX:
            raise FrameMalformed(f"field name of {len(name_bytes)} bytes in a binary header")
        parts += (
            _NAME_LENGTH.pack(len(name_bytes)),
            name_bytes,
            _LENGTH.pack(len(value_bytes)),
            value_bytes,
        )
    fields = b"".join(parts)
    try:
        fixed = _FIXED.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
    except struct.error:
        raise FrameMalformed(
            f"code {command.code} or version {command.version} does not fit a binary header, "
            "use a JSON header"
        ) from None
    return b"".join((fixed, remark, _LENGTH.pack(len(fields)), fields))


def decode_binary_header(header: bytes, body: bytes) -> Command:
    """Decode a header into a command with this `body`.

    Raises:
        FrameMalformed: a length is negative or does not fit, or bytes are left over.
    """
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
        at = _FIXED.size
        remark, at = _text(header, at, remark_length)
        (fields_length,) = _LENGTH.unpack_from(header, at)
        at += 4
        if fields_length < 0 or at + fields_length != len(header):
            raise FrameMalformed("binary header: length of its fields")
        fields: dict[str, str] = {}
        while at < len(header):
            (name_length,) = _NAME_LENGTH.unpack_from(header, at)
            name, at = _text(header, at + 2, name_length)
            (value_length,) = _LENGTH.unpack_from(header, at)
            fields[name], at = _text(header, at + 4, value_length)
    except struct.error:
        raise FrameMalformed("binary header ends early") from None
    return Command(
        code,
        fields,
        body,
        opaque,
        flag,
        remark if remark_length else None,
        language_numbered(language),
        version,
        HeaderFormat.BINARY,
    )


def _text(header: bytes, at: int, length: int) -> tuple[str, int]:
    end = at + length
    if length < 0 or end > len(header):
        raise FrameMalformed("binary header: a text does not fit")
    return header[at:end].decode("utf-8", "replace"), end
