"""The JSON form of a frame's header (type byte 0), which every client speaks.

Source: RocketMQ's RemotingCommand. Clients written in C++ and JavaScript put numbers and booleans
among the extension fields and end the header with a newline; our headers have only text values,
because the C++ client reads anything else as 0.
"""

import json
from json.encoder import encode_basestring_ascii
from typing import Annotated, Final, TypeAlias

import msgspec

from remoting.wire.codes import LanguageCode, language_named, language_numbered
from remoting.wire.command import Command, HeaderFormat
from remoting.wire.errors import FrameMalformed
from remoting.wire.field_values import INT32_MAX, INT32_MIN

# strict=False accepts control characters in strings: some clients do not escape \x01 and \x02 of
# message properties. Floats keep their text, because it may be signed.
_decode = json.JSONDecoder(strict=False, parse_float=str).decode

_ALL_TEXT: Final = {str}

_LANGUAGE_NAMES: Final[dict[int | str, int | str]] = {code: code.name for code in LanguageCode}

_JSON: Final = HeaderFormat.JSON
_KNOWN_LANGUAGES: Final[dict[int | str, LanguageCode]] = {code.name: code for code in LanguageCode}

_Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]


class _Read(msgspec.Struct, gc=False):
    """The header of most clients, which one call decodes and checks."""

    code: _Int32
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    language: str | int = "OTHER"
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815


class _Written(msgspec.Struct, gc=False):
    """A header, in the order in which it is written."""

    code: int
    extFields: dict[str, str]  # noqa: N815
    flag: int
    language: int | str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


_read: Final = msgspec.json.Decoder(_Read).decode
_write: Final = msgspec.json.Encoder().encode


def encode_json_header(command: Command) -> bytes:
    """Encode the header of `command` as compact JSON, without the body.

    `extFields` is always present: the C++ client crashes on a reply without it.
    """
    language, remark = command.language, command.remark
    header = _Written(
        command.code,
        command.fields,
        command.flag,
        _LANGUAGE_NAMES.get(language, language),
        command.opaque,
        msgspec.UNSET if remark is None else remark,
        "JSON",
        command.version,
    )
    try:
        written = _write(header)
    except UnicodeEncodeError:  # half of a surrogate pair
        return _encode_escaped(command)
    return written if written.isascii() else _encode_escaped(command)


def _encode_escaped(command: Command) -> bytes:
    """Encode like `encode_json_header`, with escapes for all characters that are not ASCII."""
    quote = encode_basestring_ascii
    language = json.dumps(_LANGUAGE_NAMES.get(command.language, command.language))
    fields = ",".join([f"{quote(name)}:{quote(value)}" for name, value in command.fields.items()])
    remark = "" if command.remark is None else f',"remark":{quote(command.remark)}'
    text = (
        f'{{"code":{command.code:d},"extFields":{{{fields}}},"flag":{command.flag},'
        f'"language":{language},"opaque":{command.opaque}{remark},'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    )
    return text.encode("ascii")


def decode_json_header(header: bytes, body: bytes) -> Command:
    """Decode a header into a command with this `body`.

    Raises FrameMalformed if it is no JSON object, or a number is out of range.
    """
    try:
        read = _read(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_loosely(header, body)
    language: int | str | None = _KNOWN_LANGUAGES.get(read.language)
    if language is None:
        language = _language(read.language)
    return Command(
        read.code,
        read.extFields or {},
        body,
        read.opaque,
        read.flag,
        read.remark,
        language,
        read.version,
        _JSON,
    )


def _decode_loosely(header: bytes, body: bytes) -> Command:
    """Decode like `decode_json_header`, but accept clients' deviations from JSON."""
    try:
        text = header.decode("utf-8", "replace")
        values = _decode(text)
    except (ValueError, RecursionError) as error:
        raise FrameMalformed(f"header is not JSON: {error!s:.120}") from None
    if type(values) is not dict:
        raise FrameMalformed("header is not a JSON object")
    fields = values.get("extFields")
    if fields is None:
        fields = {}
    elif type(fields) is not dict:
        raise FrameMalformed("extFields is not a JSON object")
    elif set(map(type, fields.values())) - _ALL_TEXT:
        fields = _as_text(fields)
    remark = values.get("remark")
    if remark is not None and type(remark) is not str:
        remark = _text_of(remark)
    language = values.get("language", LanguageCode.OTHER)
    # A lone surrogate can only come from an escape.
    if "\\ud" in text or "\\uD" in text:
        fields = {_printable(name): _printable(value) for name, value in fields.items()}
        remark = None if remark is None else _printable(remark)
        language = _printable(language) if isinstance(language, str) else language
    return Command(
        _number(values, "code", None),
        fields,
        body,
        _number(values, "opaque", 0),
        _number(values, "flag", 0),
        remark,
        _language(language),
        _number(values, "version", 0),
        HeaderFormat.JSON,
    )


def _number(values: dict[str, object], name: str, default: int | None) -> int:
    value = values.get(name, default)
    if type(value) is not int or not INT32_MIN <= value <= INT32_MAX:
        raise FrameMalformed(f"{name} is not a 32-bit number")
    return value


def _language(value: object) -> int | str:
    """Return a language by name or number; an unknown one unchanged."""
    if type(value) is str:
        return language_named(value)
    if type(value) is int and INT32_MIN <= value <= INT32_MAX:
        return language_numbered(value)
    return LanguageCode.OTHER


def _as_text(fields: dict[str, object]) -> dict[str, str]:
    """Return the fields with every value as text, without nulls, which Java clients never write."""
    return {name: _text_of(value) for name, value in fields.items() if value is not None}


def _text_of(value: object) -> str:
    """Return one JSON value as the text that a Java client would send."""
    if isinstance(value, str):
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError) as error:
        raise FrameMalformed(f"a field's value cannot be text: {error!s:.80}") from None


def _printable(text: str) -> str:
    """Replace each lone surrogate, so that the text can be written as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
