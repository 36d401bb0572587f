"""Reads the members of a JSON body with their types; errors name the member."""

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

    Clients disagree about types (a number as text, a truth value as "true"), so each reader accepts
    every form of its type. An absent member and a null one are the same. The readers raise
    BodyMalformed.

    Args:
        body_name: the kind of body, for errors.
        value: the parsed value. Raises BodyMalformed if it is no object.
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
        """Parse a whole body. Raises BodyMalformed.

        Args:
            body_name: the kind of body, for errors.
            body: the received bytes.
            max_bytes: the longest body of this kind; None leaves it to the limit of frames.
            size: how much it may hold; LARGE for bodies that list all of something.
        """
        return cls(body_name, parse_json(body_name, body, max_bytes, size))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text, or a number or truth value as text. Without a default it must be
        present.
        """
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
        """Return the name of a topic, a group or a client: short and printable."""
        text = self.text(name, default)
        if not is_name(text):
            raise BodyMalformed(
                self.body_name,
                f"{name} is no name of up to {MAX_NAME_CHARACTERS} printable characters",
            )
        return text

    def optional_text(self, name: str) -> str | None:
        return None if self.members.get(name) is None else self.text(name)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a signed 64-bit number, also from text, as the C++ client writes it."""
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
        number = self.integer(name, default)
        if not INT32_MIN <= number <= INT32_MAX:
            raise BodyMalformed(self.body_name, f"{name} is not a 32-bit number")
        return number

    def number(self, name: str) -> float:
        """Return a number, whole or not. It must be present."""
        value = self.members.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BodyMalformed(self.body_name, f"{name} is not a number")
        return float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        """Return a truth value, also from text."""
        value = self.members.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return read_boolean(value)
        return bool(value)

    def object(self, name: str) -> "JsonObject":
        """Return a nested object; empty if absent."""
        value = self.members.get(name)
        return JsonObject(self.body_name, {} if value is None else value)

    def array(self, name: str) -> list[JsonValue]:
        """Return an array; empty if absent."""
        value = self.members.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BodyMalformed(self.body_name, f"{name} is not an array")
        return value

    def objects(self, name: str, at_most: int | None = None) -> "list[JsonObject]":
        """Return an array of at most `at_most` objects; empty if absent."""
        values = self.array(name)
        if at_most is not None and len(values) > at_most:
            raise BodyMalformed(
                self.body_name, f"{name} has {len(values)} entries, at most {at_most} are read"
            )
        return [JsonObject(self.body_name, value) for value in values]

    def texts(self, name: str) -> list[str]:
        """Return an array of texts, without other values in it; empty if absent."""
        return [value for value in self.array(name) if isinstance(value, str)]

    def named_objects(self) -> "dict[str, JsonObject]":
        """Return every member as an object, without nulls."""
        return {
            name: JsonObject(self.body_name, value)
            for name, value in self.members.items()
            if value is not None
        }

    def named_texts(self) -> dict[str, str]:
        """Return every member as text, without nulls."""
        return {name: self.text(name) for name, value in self.members.items() if value is not None}
