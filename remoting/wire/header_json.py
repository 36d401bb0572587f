"""The JSON form of a frame's header (type byte 0), which every client speaks.

Source: RocketMQ's RemotingCommand. Clients written in C++ and JavaScript put numbers and booleans
among the extension fields and end the header with a newline; what we send has text values only,
because the C++ client reads anything else as 0.
"""

import json
from json.encoder import encode_basestring_ascii
from typing import Final

from remoting.wire.codes import LanguageCode, language_named, language_numbered
from remoting.wire.command import Command, HeaderFormat
from remoting.wire.errors import FrameMalformed

# strict=False lets control characters stand in strings: some clients do not escape \x01 and \x02
# of message properties. Floats keep their text, as signatures are made over it.
_DECODER: Final = json.JSONDecoder(strict=False, parse_float=str)
_decode = _DECODER.decode
_raw_decode = _DECODER.raw_decode
_quote = encode_basestring_ascii

_ALL_TEXT: Final = {str}

_LANGUAGE_JSON: Final[dict[int | str, str]] = {code: f'"{code.name}"' for code in LanguageCode}

_INT32_MIN: Final = -(1 << 31)
_INT32_MAX: Final = (1 << 31) - 1


def encode_json_header(command: Command) -> bytes:
    """The header of `command` as compact JSON, without the body.

    `extFields` is always there: the C++ client crashes on a reply that lacks it.
    """
    language = _LANGUAGE_JSON.get(command.language)
    if language is None:
        language = json.dumps(command.language)
    quote = _quote
    fields = ",".join([f"{quote(name)}:{quote(value)}" for name, value in command.fields.items()])
    remark = "" if command.remark is None else f',"remark":{quote(command.remark)}'
    text = (
        f'{{"code":{command.code:d},"extFields":{{{fields}}},"flag":{command.flag},'
        f'"language":{language},"opaque":{command.opaque}{remark},'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    )
    return text.encode("ascii")


def decode_json_header(header: bytes, body: bytes) -> Command:
    """Read a JSON header.

    Args:
        header: the bytes of the header.
        body: the frame's body, put into the command as it is.

    Raises:
        FrameMalformed: not a JSON object, or a number where none may stand.
    """
    try:
        text = header.decode("utf-8", "replace")
        # Nearly all headers are an object and nothing else: `decode` looks for more.
        end = -1
        if text[:1] == "{":
            values, end = _raw_decode(text)
        if end != len(text):
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
    # A lone surrogate can only come from an escape; with none in the text there is no need to look.
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
    """A signed 32-bit number of the header."""
    value = values.get(name, default)
    if type(value) is not int or not _INT32_MIN <= value <= _INT32_MAX:
        raise FrameMalformed(f"{name} is not a 32-bit number")
    return value


def _language(value: object) -> int | str:
    """A language by name, by number, or as it came."""
    if type(value) is str:
        return language_named(value)
    if type(value) is int and _INT32_MIN <= value <= _INT32_MAX:
        return language_numbered(value)
    return LanguageCode.OTHER


def _as_text(fields: dict[str, object]) -> dict[str, str]:
    """Fields with every value as text; nulls are left out, as Java clients never write them."""
    return {name: _text_of(value) for name, value in fields.items() if value is not None}


def _text_of(value: object) -> str:
    """One JSON value as the text a Java server would have been sent."""
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
    """`text` with each lone surrogate replaced, so that it can be written as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
