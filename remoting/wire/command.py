"""One decoded request or reply."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from remoting.wire.codes import PROTOCOL_VERSION, REPLY_LANGUAGE, REQUEST_LANGUAGE
from remoting.wire.errors import FieldMissing
from remoting.wire.field_values import INT32_MAX, INT32_MIN, is_name, read_boolean, read_int64

# Bits of the header's flag.
RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2


class HeaderFormat(IntEnum):
    JSON = 0
    BINARY = 1


# Most numbers in fields: queues, flags, counts. A look-up takes a third of the time of parsing.
_SMALL_NUMBERS: Final[dict[str | None, int]] = {str(number): number for number in range(-1, 1024)}


@dataclass(slots=True)
class Command:
    """A request or a reply.

    Attributes:
        code: a `RequestCode` or, in a reply, a `ResponseCode`; unknown numbers are kept.
        fields: the header's extension fields. Values that came as JSON numbers or booleans are
            text here ("7", "true"); nulls are left out. All text can be written as UTF-8.
        body: the bytes after the header.
        opaque: the number that pairs a reply with its request; signed 32 bits.
        flag: bit 0 response, bit 1 oneway.
        remark: text of an error, or None.
        language: a `LanguageCode`, or an unknown name or number as it came.
        version: RocketMQ's version number of the sender (see `codes.PROTOCOL_VERSION`).
        header_format: how the header was or will be written. A reply takes its request's.
    """

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: int | str = REQUEST_LANGUAGE
    version: int = PROTOCOL_VERSION
    header_format: HeaderFormat = HeaderFormat.JSON

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no reply."""
        return self.flag & ONEWAY_FLAG != 0

    def reply(
        self,
        code: int = 0,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> "Command":
        """Make the reply to this request: same opaque, same header format, our version and
        language.

        A reply to a oneway request keeps the oneway bit, so that a connection drops it instead of
        sending it.

        Args:
            code: a `ResponseCode`.
            fields: the fields of the reply.
            body: the body of the reply.
            remark: text of an error.
        """
        return Command(
            code,
            {} if fields is None else dict(fields),
            body,
            self.opaque,
            RESPONSE_FLAG | (self.flag & ONEWAY_FLAG),
            remark,
            REPLY_LANGUAGE,
            PROTOCOL_VERSION,
            self.header_format,
        )

    def without_content(self) -> "Command":
        """Return the few bytes that `reply` needs, to keep while the request waits."""
        return Command(
            self.code,
            opaque=self.opaque,
            flag=self.flag,
            version=self.version,
            header_format=self.header_format,
        )

    def text(self, name: str) -> str:
        """Return the field `name`. Raises FieldMissing."""
        value = self.fields.get(name)
        if value is None:
            raise FieldMissing(name)
        return value

    def name(self, name: str, default: str | None = None) -> str:
        """Return the field `name` as the name of a topic, a group or a client: short and printable.

        Raises FieldMissing, also if it is no such text.
        """
        value = self.fields.get(name, default)
        if value is None or not is_name(value):
            raise FieldMissing(name, value)
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """Return the field `name` as a signed 64-bit number; `default` if it is absent or empty.

        Raises FieldMissing, also if it is no such number.
        """
        value = self.fields.get(name)
        known = _SMALL_NUMBERS.get(value)
        if known is not None:
            return known
        if value is None or value == "":
            if default is None:
                raise FieldMissing(name)
            return default
        number = read_int64(value)
        if number is None:
            raise FieldMissing(name, value)
        return number

    def int32(self, name: str, default: int | None = None) -> int:
        """Return the field `name` as a signed 32-bit number, as most of Java's fields are.

        Raises FieldMissing, also if it is no such number.
        """
        known = _SMALL_NUMBERS.get(self.fields.get(name))
        if known is not None:
            return known
        number = self.integer(name, default)
        if not INT32_MIN <= number <= INT32_MAX:
            raise FieldMissing(name, self.fields.get(name))
        return number

    def boolean(self, name: str, default: bool = False) -> bool:
        """Return whether the field `name` is "true" in any case, or "1" as the C++ client sends."""
        value = self.fields.get(name)
        return default if value is None else read_boolean(value)


def server_request(
    code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
) -> Command:
    """Make a request from a server to a client, such as 40, 220 or 307; JSON, with a server's
    language.

    `Connection.request` or `Connection.send_oneway` number it.
    """
    return Command(code, {} if fields is None else dict(fields), body, language=REPLY_LANGUAGE)
