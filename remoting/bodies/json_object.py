"""Reading the members of a JSON body with their types, and errors that name the member."""

from typing import TypeVar

from remoting.wire.errors import BodyMalformed
from remoting.wire.field_values import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    MAX_NAME_CHARACTERS,
    is_name,
    read_boolean,
    read_int64,
)
from remoting.wire.loose_json import SMALL, JsonSize, JsonValue, parse_json

Default = TypeVar("Default")


class JsonObject:
    """One object of a JSON body.

    Clients disagree about types (a number as text, a truth value as "true"), so each reader takes
    what can be meant. An absent member and a null one are the same.

    Args:
        body_name: which body it is, for errors.
        value: what was parsed.

    Raises:
        BodyMalformed: the value is not an object.
    """

    def __init__(self, body_name: str, value: JsonValue) -> None:
        if not isinstance(value, dict):
            raise BodyMalformed(body_name, "not a JSON object")
        self.body_name = body_name
        self.members = value

    @classmethod
    def parse(
        cls, body_name: str, body: bytes, max_bytes: int | None = None, size: JsonSize = SMALL
    ) -> "JsonObject":
        """Read a whole body.

        Args:
            body_name: which body it is, for errors.
            body: as it came.
            max_bytes: the longest body of this kind; None leaves it to the limit of frames.
            size: how much it may hold; LARGE for bodies that list all of something.

        Raises:
            BodyMalformed: it is no JSON object, or too long.
        """
        return cls(body_name, parse_json(body_name, body, max_bytes, size))

    def text(self, name: str, default: str | None = None) -> str:
        """A text; a number or truth value is given as text. Without default it must be there."""
        value = self.members.get(name)
        if value is None:
            if default is None:
                raise BodyMalformed(self.body_name, f"{name} is missing")
            return default
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        raise BodyMalformed(self.body_name, f"{name} is not text")

    def name(self, name: str, default: str | None = None) -> str:
        """A text that names a topic, a group or a client: short and printable."""
        text = self.text(name, default)
        if not is_name(text):
            raise BodyMalformed(
                self.body_name,
                f"{name} is no name of up to {MAX_NAME_CHARACTERS} printable characters",
            )
        return text

    def optional_text(self, name: str) -> str | None:
        """A text, or None when it is absent."""
        return None if self.members.get(name) is None else self.text(name)

    def integer(self, name: str, default: int | None = None) -> int:
        """A signed 64-bit number, also when it came as text (the C++ client does that)."""
        value = self.members.get(name)
        if value is None:
            if default is None:
                raise BodyMalformed(self.body_name, f"{name} is missing")
            return default
        number = read_int64(value) if isinstance(value, str) else value
        if isinstance(number, int) and INT64_MIN <= number <= INT64_MAX:
            return int(number)
        raise BodyMalformed(self.body_name, f"{name} is not a 64-bit number")

    def int32(self, name: str, default: int | None = None) -> int:
        """As `integer`, of 32 bits."""
        number = self.integer(name, default)
        if not INT32_MIN <= number <= INT32_MAX:
            raise BodyMalformed(self.body_name, f"{name} is not a 32-bit number")
        return number

    def number(self, name: str) -> float:
        """A number, whole or not.

        Raises:
            BodyMalformed: it is missing, or none.
        """
        value = self.members.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BodyMalformed(self.body_name, f"{name} is not a number")
        return float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        """A truth value, also as text."""
        value = self.members.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return read_boolean(value)
        return bool(value)

    def object(self, name: str) -> "JsonObject":
        """A nested object; empty when it is absent."""
        value = self.members.get(name)
        return JsonObject(self.body_name, {} if value is None else value)

    def array(self, name: str) -> list[JsonValue]:
        """An array; empty when it is absent."""
        value = self.members.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BodyMalformed(self.body_name, f"{name} is not an array")
        return value

    def objects(self, name: str, at_most: int | None = None) -> "list[JsonObject]":
        """An array of objects, `at_most` so many; empty when it is absent."""
        values = self.array(name)
        if at_most is not None and len(values) > at_most:
            raise BodyMalformed(
                self.body_name, f"{name} has {len(values)} entries, at most {at_most} are read"
            )
        return [JsonObject(self.body_name, value) for value in values]

    def texts(self, name: str) -> list[str]:
        """An array of texts; other values in it are left out. Empty when it is absent."""
        return [value for value in self.array(name) if isinstance(value, str)]

    def named_objects(self) -> "dict[str, JsonObject]":
        """Every member as an object."""
        return {
            name: JsonObject(self.body_name, value)
            for name, value in self.members.items()
            if value is not None
        }

    def named_texts(self) -> dict[str, str]:
        """Every member as text; nulls are left out."""
        return {name: self.text(name) for name, value in self.members.items() if value is not None}
